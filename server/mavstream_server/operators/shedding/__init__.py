"""Load shedding at sources."""
