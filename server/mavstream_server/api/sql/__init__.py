"""SQL statements: each does what a route does, with its roles, owners, quotas and audit."""
