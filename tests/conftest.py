"""One model and one running daemon for all tests that only need to look at or feed a healthy one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# No test is timed: a first call may compile, and the machine may be busy.
settings.register_profile("apollod", deadline=None)
settings.load_profile("apollod")

if TYPE_CHECKING:
    from support.daemon import Daemon


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3.5 of a few million parameters with its tokenizer, built here."""
    path = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run(
        [sys.executable, "-m", "apollod.trainer.tiny", str(path), "--kind", "random"], check=True, capture_output=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return path


@pytest.fixture(scope="session")
def running(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Daemon"]:
    """A ready daemon, shared: leave it healthy and idle, and count relative to what you find."""
    from support.daemon import Daemon

    daemon = Daemon(tmp_path_factory.mktemp("daemon"), tiny_model).start()
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
