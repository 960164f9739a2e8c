"""Rows of files and pipes as people have them: CSV with any headers and formats, and JSON lines."""
