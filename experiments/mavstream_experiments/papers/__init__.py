"""The experiments by paper: one package per paper, one module per experiment."""
