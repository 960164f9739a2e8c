"""The rules, one module each; `catalogue` lists them."""
