"""Records of 100 bytes with keys of 10 bytes, as NumPy sees them: reading and arranging them."""

import os
from pathlib import Path

import numpy as np

BYTES = 100
# What a task reads, and what is written as one file.
SPLIT_BYTES = 50_000_000
PARTITION_BYTES = 32_000_000
RECORD = np.dtype(f"V{BYTES}")
_KEY = np.dtype({"names": ["prefix", "tail"], "formats": [">u8", ">u2"], "offsets": [0, 8], "itemsize": BYTES})


def cores():
    """How many tasks, processes or threads a peer runs at a time."""
    return os.cpu_count()


def files(folder):
    """Every file below a folder, by name."""
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def splits(folder, size):
    """The input in pieces of at most `size` bytes: (path, first record, records), as equal as a file allows."""
    for path in files(folder):
        count = path.stat().st_size // BYTES
        pieces = max(1, -(-count * BYTES // size))
        edges = [count * piece // pieces for piece in range(pieces + 1)]
        yield from ((path, first, end - first) for first, end in zip(edges, edges[1:]) if first < end)


def mapped(path, first, count):
    """Records of a file, from the page cache, not copied."""
    return np.memmap(path, RECORD, "r", first * BYTES, (count,))


def prefixes(records):
    """The first 8 bytes of every key, as numbers that compare like them."""
    return records.view(_KEY)["prefix"].astype(np.uint64)


def tails(records):
    """The last 2 bytes of every key."""
    return records.view(_KEY)["tail"].astype(np.uint16)


def ranges(prefix, parts, of=(0, 1)):
    """The range of the key space, of `parts` equal ones, that each key is in: right for any keys, balanced for uniform ones.
    With `of=(n, groups)`, keys are those of group n of `groups` equal ranges, which is what is divided."""
    wide = of[1] * parts
    return (((prefix >> np.uint64(32)) * np.uint64(wide)) >> np.uint64(32)).astype(np.int64) - of[0] * parts


def partition(blocks, parts, of=(0, 1)):
    """The records of some blocks by range: one array for each, in a buffer that the next call overwrites."""
    bucket = ranges(np.concatenate([prefixes(block) for block in blocks]), parts, of)
    # NumPy sorts small integers by radix, and only if the sort shall be stable.
    order = np.argsort(bucket.astype(np.uint8 if parts <= 256 else np.uint16), kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=parts))])
    out = arrange(blocks, order)
    return [out[first:end] for first, end in zip(edges, edges[1:])]


def sort(blocks):
    """The records of some blocks by key, in a buffer that the next call overwrites."""
    prefix = np.concatenate([prefixes(block) for block in blocks])
    if len(prefix) == 0:
        return np.empty(0, RECORD)
    return arrange(blocks, _order(prefix, blocks))


def _order(prefix, blocks):
    # Numbers sort several times faster than they argsort, so each takes its position along in its low bits. What the keys
    # have in common is dropped, to lose little by that.
    low = prefix.min()
    bits = np.uint64(len(prefix).bit_length())
    unused = np.uint64(64 - int(prefix.max() - low).bit_length())
    packed = ((prefix - low) << unused) if unused < 64 else np.zeros_like(prefix)
    packed >>= bits
    packed <<= bits
    packed |= np.arange(len(prefix), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    packed >>= bits
    same = packed[1:] == packed[:-1]
    if same.any():
        _settle(order, same, prefix, blocks)
    return order


def _settle(order, same, prefix, blocks):
    """Sorts those by their whole keys that are next to an equal."""
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    run = np.cumsum(~np.insert(same, 0, False))[tied]
    who = order[tied]
    tail = np.concatenate([tails(block) for block in blocks])
    order[tied] = who[np.lexsort((tail[who], prefix[who], run))]


_buffer = np.empty(0, RECORD)


def arrange(blocks, order):
    """Records `order` of the blocks' records, counted through all of them. The buffer is kept: fresh memory is dear."""
    global _buffer
    if len(order) > len(_buffer):
        _buffer = np.empty(len(order) * 9 // 8, RECORD)
    out = _buffer[: len(order)]
    if len(blocks) == 1:
        return np.take(blocks[0], order, out=out, mode="clip")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    at = 0
    for block in blocks:
        out[place[at : at + len(block)]] = block
        at += len(block)
    return out
