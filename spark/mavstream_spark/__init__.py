"""Data jobs on Spark: generate datasets, convert raw logs, compute the expected answers of queries.

    commands    `mavstream data`
    homes       the model of smart homes, plain numpy
    generate    datasets of smart homes and of plain readings
    convert     raw logs to datasets
    plans       compiler from typed plans to Spark SQL
    expected    answers of plans over a dataset
    datasets    reading, writing and publishing datasets on any storage

Modules import pyspark inside of functions, so that all can be imported without it.
"""
