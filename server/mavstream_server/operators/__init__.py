"""The operators of running queries, and the queues between them."""
