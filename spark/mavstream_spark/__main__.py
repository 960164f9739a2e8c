"""The data jobs as a program: `python -m mavstream_spark`, and the file that spark-submit is given."""

from mavstream_spark.commands import run

if __name__ == "__main__":
    run()
