"""Sort on processes with NumPy, blocks between them in files, written by hand: `sort_numpy.py INPUT OUTPUT [--lexsort]`.

With `--lexsort`: a reducer sorts as NumPy offers to sort by two columns, not with the packed keys of `records.sort`.
"""

import multiprocessing
import os
import sys
from itertools import accumulate
from pathlib import Path

import numpy as np

import measure
import records
import validation


def map_split(job):
    """Writes a split's records by partition into one file; where each partition begins and the last one ends."""
    split, parts, path = job
    blocks = records.partition([records.mapped(*split)], parts)
    with open(path, "wb", buffering=0) as file:
        for block in blocks:
            file.write(block)
    return list(accumulate((len(block) for block in blocks), initial=0))


def lexsort(blocks):
    """The records of one block by key."""
    (block,) = blocks
    return block[np.lexsort((records.tails(block), records.prefixes(block)))]


def reduce_part(job):
    """Sorts what is for one partition in the maps' files."""
    places, path, sort_blocks = job
    read = np.empty(sum(end - first for _, first, end in places), records.RECORD)
    at = 0
    for source, first, end in places:
        with open(source, "rb", buffering=0) as file:
            file.seek(first * records.BYTES)
            file.readinto(read[at : at + end - first])
        at += end - first
    sort_blocks([read]).tofile(path)


def sort(pool, input, output, between, sort_blocks):
    splits = list(records.splits(input, records.SPLIT_BYTES))
    size = sum(count for _, _, count in splits) * records.BYTES
    cores = records.cores()
    parts = max(1, round(size / records.PARTITION_BYTES / cores)) * cores
    paths = [between / f"map-{number:05}" for number in range(len(splits))]
    edges = pool.map(map_split, [(split, parts, path) for split, path in zip(splits, paths)], chunksize=1)
    columns = [[(path, row[part], row[part + 1]) for path, row in zip(paths, edges)] for part in range(parts)]
    jobs = [(column, output / f"part-{part:05}", sort_blocks) for part, column in enumerate(columns)]
    pool.map(reduce_part, jobs, chunksize=1)
    for path in paths:
        os.remove(path)


def main():
    input, output = map(Path, sys.argv[1:3])
    sort_blocks = lexsort if "--lexsort" in sys.argv else records.sort
    name = "numpy-lexsort" if sort_blocks is lexsort else "numpy"
    between = output.with_name(output.name + "-between")
    between.mkdir()
    measure.keep_freed_memory()
    with multiprocessing.get_context("spawn").Pool(records.cores()) as pool:
        pool.map(abs, range(8 * records.cores()), chunksize=1)
        measured, _ = measure.run(name, lambda: sort(pool, input, output, between, sort_blocks), output)
    between.rmdir()
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
