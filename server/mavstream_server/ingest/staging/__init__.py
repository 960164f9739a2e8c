"""Rows that are sent in parts and published at once, as producers on many machines do."""
