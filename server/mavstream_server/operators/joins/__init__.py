"""The join operators and their state."""
