"""Records as Arrow tables, for engines that sort tables: both parts of the key as numbers, which they sort fastest by."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

import records

OUTPUT_RECORDS = records.PARTITION_BYTES // records.BYTES


def table(input):
    """Columns `prefix`, `tail` and `record`; records are not copied out of the page cache."""
    return pa.Table.from_batches([batch(records.mapped(*split)) for split in records.splits(input, records.SPLIT_BYTES)])


def batch(mapped):
    count = len(mapped)
    offsets = np.arange(count + 1, dtype=np.int64) * records.BYTES
    record = pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(mapped)])
    return pa.record_batch([records.prefixes(mapped), records.tails(mapped), record], ["prefix", "tail", "record"])


def write(column_of, count, output):
    """Writes sorted records as files, a thread on each core: `column_of(first, records)` is an Arrow column of some of them."""

    def write_one(first):
        column = column_of(first, min(OUTPUT_RECORDS, count - first))
        with open(output / f"part-{first // OUTPUT_RECORDS:05}", "wb", buffering=0) as file:
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                file.write(bytes_of(array))

    with ThreadPoolExecutor(records.cores()) as pool:
        list(pool.map(write_one, range(0, count, OUTPUT_RECORDS)))


def bytes_of(array):
    """The records of a binary column, which lie one after the other."""
    _, offsets, data = array.buffers()
    wide = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    first = np.frombuffer(offsets, wide, 1, array.offset * np.dtype(wide).itemsize)[0]
    return memoryview(data)[first : first + len(array) * records.BYTES]
