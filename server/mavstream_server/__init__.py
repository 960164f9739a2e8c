"""The service: logs, operators, engine and scheduling."""
