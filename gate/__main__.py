"""`python -m gate`, for where the `gate` command isn't on PATH."""

from gate.cli import main

if __name__ == "__main__":
    main()
