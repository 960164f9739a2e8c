"""Continuous queries of a server, run on Spark in micro-batches.

    command         `mavstream spark-runner`
    runner          finds queries and runs each in a thread of its own
    query_run       one query: what it is asked to do, its micro-batches, what it reports
    server          requests to the server
    pools           the scheduler pools of priorities
    state           from where a run goes on, as the server stores it
    batches         which rows and windows a micro-batch takes
    frontiers       how far in time each node of a plan has answered, and which rows it still needs
    incremental     the answers of one micro-batch as a data frame

Nothing is kept in Spark between two micro-batches: rows of open windows are read again from the server.
"""
