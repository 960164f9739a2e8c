"""`mavstream sql`: SQL statements from the command line, from files, and in an interactive shell."""
