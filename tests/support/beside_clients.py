"""Runs a program that may import packages of a directory which this environment lacks.

    python beside_clients.py DIRECTORY FILE|-m MODULE [ARGUMENT ...]

The directory comes last on the path: what the environment has is taken from there.
"""

import runpy
import sys

from apollod import foreign_wheels


def main() -> None:
    """Run the program as if it had been started."""
    directory, *program = sys.argv[1:]
    sys.path[0:1] = []  # the directory of this file
    sys.path.append(directory)
    foreign_wheels.guard_lazily()
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
