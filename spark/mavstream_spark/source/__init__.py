"""MavStream as a data source of Spark: streams and results of queries are read, streams are written.

    register        what users call
    data_source     what Spark instantiates for `format("mavstream")`
    options         options, validated
    readers         batch and streaming reads, by ranges of positions
    writers         writes: executors stage rows on the server, the driver publishes them
    stored_rows     pages of rows from the server
    connection      HTTP

`data_source`, `readers` and `writers` subclass classes of pyspark, so only `register` imports them.
"""
