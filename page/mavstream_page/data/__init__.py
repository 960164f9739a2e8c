"""What the views show: topics that are polled once for all viewers with the same token."""
