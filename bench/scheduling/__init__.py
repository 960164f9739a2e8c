"""Scheduling: cost of decisions, response times of classes, isolation of an important class."""
