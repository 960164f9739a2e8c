"""Everything an answer meets behind the log: reading, encoding, subscriptions, pulls."""
