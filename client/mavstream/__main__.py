"""`python -m mavstream`: the `mavstream` command."""

from mavstream.cli.main import run

if __name__ == "__main__":
    run()
