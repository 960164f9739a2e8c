"""Sources of queries: when they read, how much, and how long they wait for more rows."""
