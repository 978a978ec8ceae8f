"""Temporary directories in memory, for tests whose files need not outlast a power cut: a journal is flushed with every
commit, and a hundred flushes of a disk that others use, too, take longer than all that the test looks at."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

LEAST_FREE = 1 << 30


def _place(memory: str) -> str | None:
    """This file system in memory; None, which is wherever temporary files are, where there is little of it."""
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= LEAST_FREE
    return memory if usable else None


PLACE = _place("/dev/shm")


@contextmanager
def directory() -> Iterator[Path]:
    """A directory of its own, empty, removed in the end."""
    with TemporaryDirectory(prefix="apollod-tests-", dir=PLACE) as path:
        yield Path(path)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """pytest's `tmp_path`, in memory. A module takes it by `tmp_path = in_memory.tmp_path`. After a failure its files
    are where pytest keeps them."""
    failed = request.session.testsfailed
    with directory() as path:
        yield path
        if request.session.testsfailed > failed:
            with suppress(shutil.Error):  # sockets are not copied
                shutil.copytree(path, tmp_path, dirs_exist_ok=True)
