"""Two daemons with vLLM, each shared: one for this user's processes, and one with a key, behind a router."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.daemon import VLLM, Daemon, free_port
from support.foreign_clients import KEY, running

MODULE = "sglang_router.launch_router"


class Served(NamedTuple):
    """A daemon, and the directory from which it may read weights."""

    daemon: Daemon
    outside: Path


class Routed(NamedTuple):
    """A daemon with a key, and the URL of a router in front of it."""

    daemon: Daemon
    router: str
    log: Path


@pytest.fixture(scope="session")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A ready daemon whose weights others may write."""
    root, outside = tmp_path_factory.mktemp("d"), tmp_path_factory.mktemp("outside")
    control = f'[control]\nenabled = true\nreceive_s = 60\ndirectories = ["{outside}"]\n'
    daemon = Daemon(root, tiny_model, control, VLLM)
    try:
        daemon.start().wait_ready()
        yield Served(daemon, outside)
    finally:
        daemon.end()


@pytest.fixture(scope="session")
def keyed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a key, not started."""
    daemon = Daemon(tmp_path_factory.mktemp("k"), tiny_model, "[control]\nenabled = true\n", VLLM)
    daemon.config.write_text(daemon.config.read_text().replace("[engine]\n", f'[engine]\napi_key = "{KEY}"\n'))
    yield daemon
    daemon.end()


@pytest.fixture(scope="session")
def routed(keyed: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    """The daemon with a key, begun after the router that waits for it."""
    port, log = free_port(), tmp_path_factory.mktemp("r") / "router.log"
    options = [
        "--worker-urls", keyed.url, "--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1",
        "--prometheus-port", str(free_port()), "--api-key", KEY, "--worker-startup-check-interval", "1",
    ]  # fmt: skip
    with running(log, "-m", MODULE, *options):
        keyed.start().wait_ready()
        yield Routed(keyed, f"http://127.0.0.1:{port}", log)
