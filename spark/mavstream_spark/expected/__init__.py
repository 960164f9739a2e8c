"""Expected answers of queries over a dataset, computed by Spark."""
