"""Recovery: how long it takes, and what checkpoints cost while nothing fails."""
