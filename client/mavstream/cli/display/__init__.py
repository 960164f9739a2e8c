"""Output: tables for people, JSON for programs, live views and timelines."""
