"""The socket that a glance at the configuration finds is the one that the configuration names."""

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from apollod.cli.control.status_verb import near_socket
from apollod.supervisor.config import load_config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "state" / "run").mkdir(parents=True)
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "m"\n[state]\ndir = "{tmp_path}/state/../state"\n')
    return file


def test_it_is_the_one_of_the_configuration(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)  # the path of a socket may have 107 bytes
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("state/run/apollod.sock")
        near = near_socket(str(config), {})
        assert near is not None and Path(near).samefile(load_config(str(config), environ={}).socket_path)
        for name in ("RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "APOLLOD_STATE__DIR"):
            assert near_socket(str(config), {name: "/elsewhere"}) is None


def test_the_configuration_is_asked_where_a_glance_is_not_enough(config: Path) -> None:
    assert near_socket(str(config), {}) is None  # no daemon
    for text in ("", "[state]", "[state]\ndir = 3", "state = 1", "[", "\0", '[state]\ndir = "a\\u0000b"'):
        config.write_text(text)
        assert near_socket(str(config), {}) is None
    assert near_socket(str(config.parent / "none.toml"), {}) is None


def test_a_status_loads_no_msgspec() -> None:
    code = "import sys, apollod.cli.control.status_verb; sys.exit('msgspec' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
