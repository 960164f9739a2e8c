"""`python -m mavstream_spark.runs` is `mavstream spark-runner`, also under spark-submit."""

from mavstream_spark.runs.command import app

app()
