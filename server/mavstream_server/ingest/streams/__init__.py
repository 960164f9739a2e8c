"""Streams as a whole: what is known of them, and how they change."""
