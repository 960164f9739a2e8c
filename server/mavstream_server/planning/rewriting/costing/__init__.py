"""The cost model: the expected cost of plans, from metrics of the running one and from estimates."""
