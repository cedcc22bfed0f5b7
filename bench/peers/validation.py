"""Whether a sort's output is its input, sorted."""

import numpy as np

import records

# Small enough that what is computed of it stays in the processor's cache.
_CHUNK_BYTES = 10_000_000
_WEIGHTS = np.random.default_rng(1).integers(0, 2**64, 25, np.uint64) | np.uint64(1)


def _checksum(chunk):
    """The same for the same records in any order."""
    words = np.ndarray((len(chunk), 25), "<u4", chunk)
    hashed = np.zeros(len(chunk), np.uint64)
    for column, weight in enumerate(_WEIGHTS):
        hashed += words[:, column] * weight
    hashed ^= hashed >> np.uint64(29)
    return len(chunk), int((hashed * _WEIGHTS[0]).sum(dtype=np.uint64))


def _sum(folder):
    sums = [_checksum(records.mapped(*split)) for split in records.splits(folder, _CHUNK_BYTES)]
    return sum(count for count, _ in sums), sum(value for _, value in sums) % 2**64


def validate(input, output):
    """Raises unless the files of `output`, by name, are the records of `input` in order."""
    last = (0, 0)
    for split in records.splits(output, _CHUNK_BYTES):
        chunk = records.mapped(*split)
        prefix, tail = records.prefixes(chunk), records.tails(chunk)
        rising = (prefix[1:] > prefix[:-1]) | ((prefix[1:] == prefix[:-1]) & (tail[1:] >= tail[:-1]))
        if not rising.all() or (prefix[0], tail[0]) < last:
            raise ValueError(f"{split[0]} is not in order, or comes before the one before it")
        last = (prefix[-1], tail[-1])
    if _sum(input) != _sum(output):
        raise ValueError("what came out is not what went in")
