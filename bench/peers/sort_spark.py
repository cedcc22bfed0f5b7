"""Sort in Spark: `sort_spark.py INPUT OUTPUT`."""

import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import substring

import frames
import measure
import records
import validation


def session(between):
    """Spark in this machine's Java, on all cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.hadoop.mapreduce.input.fileinputformat.input.dir.recursive": "true",
        "spark.local.dir": str(between),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{records.cores()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark, input):
    """A data frame of one column, read by Java: Python is slower."""
    of_bytes = spark._jsc.binaryRecords(str(input), records.BYTES).rdd()
    return DataFrame(spark._jsparkSession.createDataset(of_bytes, spark._jvm.Encoders.BINARY()).toDF(), spark)


def writer(output):
    def write(batches):
        if batches := list(batches):
            record = pa.Table.from_batches(batches)["value"]
            frames.write_records(record, output)
            yield pa.record_batch([[len(record)]], ["records"])

    return write


def sort(spark, input, output):
    unsorted = read(spark, input).withColumn("key", substring("value", 1, 10))
    in_order = unsorted.repartitionByRange(frames.parts(input), "key").sortWithinPartitions("key").select("value")
    in_order.mapInArrow(writer(output), "records long").collect()


def main():
    input, output = map(Path, sys.argv[1:3])
    spark = session(output.with_name(output.name + "-between"))
    spark.range(1000).repartition(records.cores()).mapInArrow(lambda batches: batches, "id long").collect()
    measured, _ = measure.run("spark", lambda: sort(spark, input, output), output)
    spark.stop()
    validation.validate(input, output)
    measure.report(measured)


if __name__ == "__main__":
    main()
