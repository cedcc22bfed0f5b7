"""Records as data frames and tables of pieces of the input, for engines that read and write in tasks of their own."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import records
import tables


def splits(input):
    """What tasks read, each `(path, first record, records)`."""
    return [(str(path), first, count) for path, first, count in records.splits(input, records.SPLIT_BYTES)]


def parts(input):
    """How many pieces the output is to have."""
    return max(1, round(sum(path.stat().st_size for path in records.files(input)) / records.PARTITION_BYTES))


def read(split):
    """A split as a data frame of columns `prefix`, `tail` and `record`, records as Arrow's."""
    return pa.table(tables.batch(records.mapped(*split))).to_pandas(types_mapper=_types)


def _types(kind):
    return pd.ArrowDtype(kind) if pa.types.is_large_binary(kind) else None


EMPTY = pa.table(tables.batch(np.empty(0, records.RECORD))).to_pandas(types_mapper=_types)


def write(frame, output):
    """Writes a sorted data frame's records."""
    write_records(pa.Table.from_pandas(frame, preserve_index=False)["record"], output)


def write_records(column, output):
    """Writes sorted records, a column of Arrow, as a file that is named by the first key: names are in the order of keys."""
    if len(column) > 0:
        with open(Path(output) / f"part-{column[0].as_py()[:10].hex()}", "wb", buffering=0) as file:
            for array in column.chunks:
                file.write(tables.bytes_of(array))
