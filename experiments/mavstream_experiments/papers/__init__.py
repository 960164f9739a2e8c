"""What the papers report, one package per paper, one module per experiment."""
