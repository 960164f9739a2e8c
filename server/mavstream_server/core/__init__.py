"""What every other part may import: clock, metric models, errors, settings."""
