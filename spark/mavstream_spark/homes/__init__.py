"""A model of smart homes: people with daily routines, and sensors that observe them.

A home-day depends on the seed, the home and the day alone, so any task can make it.
"""
