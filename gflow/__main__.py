"""`python -m gflow` is the command `gflow`."""

from gflow.cli.main import main

if __name__ == "__main__":
    main()
