"""The live driver: real operators, a clock that is handed in, one core."""
