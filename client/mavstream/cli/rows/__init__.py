"""Rows of files and pipes as the command reads them, and rows of streams as it prints them."""
