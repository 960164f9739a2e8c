"""SQL statements: sent to a server, or executed here where they read files."""
