"""Scheduling policies, one file each, named as users name them."""
