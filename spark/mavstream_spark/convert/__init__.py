"""Conversion of raw logs: each line becomes a row of a stream or is kept with the reason why not."""
