"""Sort in Polars: `sort_polars.py INPUT OUTPUT`."""

import sys
from pathlib import Path

import polars

import measure
import tables
import validation


def sort(input, output):
    unsorted = polars.from_arrow(tables.table(input), rechunk=False)
    column = unsorted.sort("prefix", "tail")["record"]

    def column_of(first, count):
        return column[first : first + count].to_arrow(compat_level=polars.CompatLevel.oldest())

    tables.write(column_of, len(column), output)


def main():
    input, output = map(Path, sys.argv[1:3])
    measured, _ = measure.run("polars", lambda: sort(input, output), output)
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
