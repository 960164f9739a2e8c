"""Smart homes: people who follow their days, and sensors that see them.

Everything of a home and a day comes from the seed, the home and the day alone, so any task may make it.
"""
