"""Plans as Spark jobs: the batch answer of a continuous query over whole streams.

Nothing here knows of files or commands: a checked plan and a data frame per stream go in, a data frame with
the rows of the answer comes out.
"""
