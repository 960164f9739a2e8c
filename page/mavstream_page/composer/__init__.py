"""Composing queries: the draft, the SQL editor and the canvas that show it, and what becomes of it."""
