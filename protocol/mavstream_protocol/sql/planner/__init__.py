"""Planning of queries: syntax trees to plans, with names resolved and types checked node by node."""
