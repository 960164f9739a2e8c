"""The data jobs as a program: `python -m mavstream_spark`, or `spark-submit` with this file."""

from mavstream_spark.commands import run

if __name__ == "__main__":
    run()
