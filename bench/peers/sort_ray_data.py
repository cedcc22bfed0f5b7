"""Sort in Ray Data: `sort_ray_data.py INPUT OUTPUT`."""

import sys
from pathlib import Path

import pyarrow as pa
import ray

import frames
import measure
import records
import tables
import validation
from sort_ray_numpy import warm_up


def read(row):
    """The split that a table's one row says, as a table."""
    split = (row["path"][0].as_py(), row["first"][0].as_py(), row["count"][0].as_py())
    return pa.table(tables.batch(records.mapped(*split)))


def write(table, output):
    frames.write_records(table["record"], output)
    return pa.table({"records": [len(table)]})


def sort(input, output):
    splits = [dict(zip(("path", "first", "count"), split)) for split in frames.splits(input)]
    unsorted = ray.data.from_items(splits, override_num_blocks=len(splits)).map_batches(
        read, batch_size=None, batch_format="pyarrow")
    in_order = unsorted.sort(["prefix", "tail"])
    in_order.map_batches(write, batch_size=None, batch_format="pyarrow", fn_kwargs={"output": output}).materialize()


def main():
    input, output = map(Path, sys.argv[1:3])
    store_bytes = (256 << 20) + 2 * sum(path.stat().st_size for path in records.files(input))
    ray.init(num_cpus=records.cores(), object_store_memory=store_bytes, include_dashboard=False,
             log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    warm_up(store_bytes)
    ray.data.range(records.cores()).map_batches(lambda batch: batch).materialize()
    measured, _ = measure.run("ray-data", lambda: sort(input, output), output)
    ray.shutdown()
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
