"""Scoring of policies and the learners that choose between them."""
