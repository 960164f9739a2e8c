"""Data jobs on Spark: generate, convert, answer. Only the jobs themselves import pyspark."""
