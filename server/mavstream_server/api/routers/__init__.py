"""REST resources, one router per noun."""
