"""Jobs on Spark, and MavStream as a data source of Spark: `register(spark)`.

    commands    `mavstream data`
    homes       the model of smart homes, plain numpy
    generate    datasets of smart homes and of plain readings
    convert     raw logs to datasets
    plans       compiler from typed plans to Spark SQL
    expected    answers of plans over a dataset
    datasets    reading, writing and publishing datasets on any storage
    source      the data source `mavstream`
    runs        continuous queries of a server, run in micro-batches

Modules import pyspark inside of functions, so that all can be imported without it.
"""

from mavstream_spark.source.register import register

__all__ = ["register"]
