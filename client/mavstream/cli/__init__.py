"""The command `mavstream`: one sub-command per noun, tables for people, JSON for programs."""
