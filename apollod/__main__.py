"""`python -m apollod`."""

from apollod.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
