"""Sort on Ray tasks with NumPy, written by hand: `sort_ray_numpy.py INPUT OUTPUT [--push]`.

One level: a map splits its input into a block for each reducer, a reducer sorts its blocks. With `--push`: a map makes a block for
each group of reducers, and merges split those of some maps into blocks for reducers, while further maps run.
"""

import sys
import time
from pathlib import Path

import numpy as np
import ray

import measure
import records
import validation

MAPS_PER_MERGE = 4
ROUNDS_IN_FLIGHT = 2
FILL_BYTES = 32 << 20
# Ray frees objects once a second.
FREED_AFTER_SECONDS = 2


@ray.remote
def map_blocks(split, parts):
    blocks = records.partition([records.mapped(*split)], parts)
    return blocks if parts > 1 else blocks[0]


@ray.remote
def merge_blocks(group, groups, parts, *blocks):
    merged = records.partition(blocks, parts, (group, groups))
    return merged if parts > 1 else merged[0]


@ray.remote
def reduce_blocks(path, *blocks):
    records.sort(blocks).tofile(path)


@ray.remote
def fill():
    return np.zeros(FILL_BYTES, np.uint8)


def warm_up(store_bytes):
    """Starts the workers, and has memory for blocks faulted in before they come: that would take longer than to copy them."""
    filled = [fill.remote() for _ in range(store_bytes * 9 // 10 // FILL_BYTES)]
    ray.wait(filled, num_returns=len(filled), fetch_local=False)
    del filled
    time.sleep(FREED_AFTER_SECONDS)


def one_level(splits, parts):
    """The blocks of each reducer."""
    rows = [map_blocks.options(num_returns=parts).remote(split, parts) for split in splits]
    return [list(column) for column in zip(*rows)]


def push(splits, parts):
    """The same with merges between; the maps' blocks go when they are merged."""
    groups = records.cores()
    parts //= groups
    columns, rounds = [[] for _ in range(groups * parts)], []
    size = MAPS_PER_MERGE * groups
    for start in range(0, len(splits), size):
        if len(rounds) >= ROUNDS_IN_FLIGHT:
            ray.wait(rounds[-ROUNDS_IN_FLIGHT], num_returns=len(rounds[-ROUNDS_IN_FLIGHT]), fetch_local=False)
        rows = [map_blocks.options(num_returns=groups).remote(split, groups) for split in splits[start : start + size]]
        rounds.append([])
        for group, blocks in enumerate(zip(*rows)):
            merged = merge_blocks.options(num_returns=parts).remote(group, groups, parts, *blocks)
            rounds[-1].append(merged[0])
            for part, block in enumerate(merged):
                columns[group * parts + part].append(block)
    return columns


def sort(input, output, shuffle):
    splits = list(records.splits(input, records.SPLIT_BYTES))
    size = sum(count for _, _, count in splits) * records.BYTES
    cores = records.cores()
    parts = max(1, round(size / records.PARTITION_BYTES / cores)) * cores
    columns = shuffle(splits, parts)
    done = []
    for number in range(parts):
        # Nobody else shall hold the blocks: they are dropped when their reducer is done.
        blocks, columns[number] = columns[number], None
        done.append(reduce_blocks.remote(f"{output}/part-{number:05}", *blocks))
        del blocks
    ray.get(done)


def main():
    input, output = map(Path, sys.argv[1:3])
    shuffle = push if "--push" in sys.argv else one_level
    name = "ray-numpy-push" if shuffle is push else "ray-numpy"
    size = sum(path.stat().st_size for path in records.files(input))
    measure.keep_freed_memory()
    store_bytes = (256 << 20) + int(size * (1.6 if shuffle is push else 1.1))
    ray.init(num_cpus=records.cores(), object_store_memory=store_bytes, include_dashboard=False, log_to_driver=False,
             logging_level="error")
    warm_up(store_bytes)
    measured, _ = measure.run(name, lambda: sort(input, output, shuffle), output)
    ray.shutdown()
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
