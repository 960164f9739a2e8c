"""The demo: a server, twenty smart homes, 21 queries in three classes, and what each class gets."""
