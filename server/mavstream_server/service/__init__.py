"""The service behind the API: catalog, streams, queries, results and the link to the engine process."""
