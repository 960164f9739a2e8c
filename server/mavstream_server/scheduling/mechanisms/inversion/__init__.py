"""Detection and correction of priority inversion between classes."""
