"""Fuzzers: seeded generators of requests and websocket sessions, and the processes that send them."""
