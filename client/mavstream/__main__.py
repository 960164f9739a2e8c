"""`python -m mavstream` is the command `mavstream`."""

from mavstream.cli.main import run

if __name__ == "__main__":
    run()
