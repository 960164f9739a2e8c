"""What clients see of queries: descriptions, plans, metrics and QoS reports."""
