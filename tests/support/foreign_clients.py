"""Clients of other people's trainers, as `make test` and `make conformance` install them: each runs in a process of its
own, with the packages of `.clients` behind those of the environment, so that none of these is shadowed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".clients"
PROGRAMS = ROOT / "tests" / "conformance" / "clients"
BESIDE = Path(__file__).with_name("beside_clients.py")
CLIENT_S = 400.0
KEY = "a-key-of-these-tests"
"""of the daemon that has one"""


def needs(package: str) -> pytest.MarkDecorator:
    """A mark that skips a test without this package."""
    return pytest.mark.skipif(
        not (CLIENTS / package).is_dir(),
        reason=f"there is no {package} in .clients: run `make conformance` where a package index is reached",
    )


def command(*program: str) -> list[str]:
    """Arguments of a process that runs a file, or a module after `-m`, with the clients on its path."""
    return [sys.executable, str(BESIDE), str(CLIENTS), *program]


def environment() -> dict[str, str]:
    """The environment of a client: one thread, no network but this machine's own."""
    ours = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **ours, "PYTHONPATH": str(ROOT)}


def answer_of(program: str, *arguments: str, directory: Path) -> Any:
    """What a program of tests/conformance/clients wrote as JSON into the file that is its last argument."""
    answer = directory / f"{program}.json"
    done = subprocess.run(
        command(str(PROGRAMS / f"{program}.py"), *arguments, str(answer)),
        env=environment(), capture_output=True, text=True, timeout=CLIENT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{program} left with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return json.loads(answer.read_text())


@contextmanager
def running(log: Path, *program: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A client that runs until the end of the block."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command(*program), env=environment(), stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
