"""The rewrite rules, one module each; `catalogue` lists them."""
