"""Sort in Dask: `sort_dask.py INPUT OUTPUT`."""

import shutil
import sys
from pathlib import Path

import dask
import dask.dataframe
from dask.distributed import Client, LocalCluster

import frames
import measure
import records
import validation


def sort(input, output):
    unsorted = dask.dataframe.from_map(frames.read, frames.splits(input), meta=frames.EMPTY)
    parts = frames.parts(input)
    in_order = unsorted.sort_values(["prefix", "tail"], npartitions=parts)
    dask.compute(*[dask.delayed(frames.write)(part, output) for part in in_order.to_delayed()])


def main():
    input, output = map(Path, sys.argv[1:3])
    dask.config.set({"dataframe.shuffle.method": "p2p"})
    between = output.with_name(output.name + "-between")
    between.mkdir()
    workers = LocalCluster(n_workers=records.cores(), threads_per_worker=1, dashboard_address=None, local_directory=between)
    with workers, Client(workers):
        measured, _ = measure.run("dask", lambda: sort(input, output), output)
    shutil.rmtree(between)
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
