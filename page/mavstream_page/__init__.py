"""The browser page: overview, queries, streams, scheduler and a composer, in a process of its own.

It uses the SDK and public interfaces alone, so it shows what any client may see, and nothing that it does can
hold back rows.
"""
