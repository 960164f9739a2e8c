"""The Python SDK and the `mavstream` command; both come with the service."""
