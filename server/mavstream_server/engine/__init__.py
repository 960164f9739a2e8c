"""The engine: runs queries with real operators on one core, with an injected clock."""
