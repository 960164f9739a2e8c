"""The engine by itself: throughput, memory, and what shared prefixes save."""
