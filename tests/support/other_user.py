"""The commands as another user runs them, who owns nothing here."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import ran

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")

# Everything is imported before: the interpreter may lie where only its owner reads.
_AS_NOBODY = f"""
os.chdir("/")
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""


def as_nobody(*arguments: object, module: str = "main") -> "subprocess.CompletedProcess[str]":
    """`apollod ARGUMENTS`, or another command of `apollod.cli`, by a user who is neither root nor the owner of
    anything."""
    clean = {name: value for name, value in os.environ.items() if name != "APOLLOD_CONFIG"}
    return ran(*arguments, module=f"apollod.cli.{module}", environment=clean, before=_AS_NOBODY)


@contextmanager
def open_place() -> Iterator[Path]:
    """A directory in which everybody may look about, unlike pytest's."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def refused(done: "subprocess.CompletedProcess[str]", *named: object) -> str:
    """The one line of a command that was not permitted; it names all of these."""
    assert done.returncode == 4, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    for name in named:
        assert str(name) in done.stderr
    return done.stderr
