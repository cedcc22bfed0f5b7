"""Sort in DuckDB: `sort_duckdb.py INPUT OUTPUT`."""

import sys
from pathlib import Path

import duckdb

import measure
import records
import tables
import validation


def sort(database, input, output):
    unsorted = tables.table(input)  # DuckDB finds tables by the names of variables.
    column = database.sql("SELECT record FROM unsorted ORDER BY prefix, tail").to_arrow_table().column("record")
    tables.write(column.slice, len(unsorted), output)


def main():
    input, output = map(Path, sys.argv[1:3])
    database = duckdb.connect(config={"threads": records.cores()})
    measured, _ = measure.run("duckdb", lambda: sort(database, input, output), output)
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
