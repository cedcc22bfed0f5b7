"""Count and sum by key, of Arrow IPC files with columns `key` and `value`: `groupby.py duckdb|polars INPUT`."""

import sys
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa

import measure
import records


def mapped(input):
    """All files as one table, in the page cache."""
    return pa.concat_tables(pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in records.files(input))


def with_duckdb(input):
    numbers = mapped(input)  # DuckDB finds tables by the names of variables.
    query = "SELECT key, count(*) AS count, sum(value) AS sum FROM numbers GROUP BY key"
    return duckdb.sql(query).to_arrow_table()


def with_polars(input):
    rows = polars.scan_ipc(records.files(input))
    grouped = rows.group_by("key").agg(polars.len().alias("count"), polars.col("value").sum().alias("sum"))
    return grouped.collect(engine="streaming").to_arrow()


def validate(input, result):
    """Raises unless the counts and sums are what NumPy finds. Keys are small, and sums exact in any order."""
    keys = result["key"].to_numpy()
    counts, sums = np.zeros(keys.max() + 1, np.int64), np.zeros(keys.max() + 1)
    found_counts, found_sums = np.zeros_like(counts), np.zeros_like(sums)
    found_counts[keys], found_sums[keys] = result["count"].to_numpy(), result["sum"].to_numpy()
    for batch in mapped(input).to_batches():
        key = batch["key"].to_numpy()
        counts += np.bincount(key, minlength=len(counts))
        sums += np.bincount(key, batch["value"].to_numpy(), minlength=len(sums))
    if len(np.unique(keys)) != len(keys) or (counts != found_counts).any() or (sums != found_sums).any():
        raise ValueError("the groups are not those of the rows")


def main():
    peer, input = sys.argv[1], Path(sys.argv[2])
    act = {"duckdb": with_duckdb, "polars": with_polars}[peer]
    measured, result = measure.run(peer, lambda: act(input))
    validate(input, result)
    measure.report(measured)


if __name__ == "__main__":
    main()
