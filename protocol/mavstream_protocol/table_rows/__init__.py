"""The rows of a stored table as people and programs write them."""
