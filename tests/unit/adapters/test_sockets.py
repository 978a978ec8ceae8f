"""Where the supervisor's socket may lie, and who can connect to it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from support.other_user import NOBODY, needs_root, open_place

from apollod.adapters.ipc.sockets import listen
from apollod.errors import ConfigError


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def listen_once(path: Path) -> None:
    """Listen there and stop again."""

    async def main() -> None:
        async with await listen(path):
            pass

    anyio.run(main)


def test_a_directory_that_is_made_here_and_the_socket_are_ours_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        listen_once(tmp_path / "run/s")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "run"), mode(tmp_path / "run/s")) == (0o700, 0o600)


def test_the_socket_is_closed_to_others_from_its_first_moment(tmp_path: Path) -> None:
    """To change its mode after it was bound would be too late: what counts is the umask when the system makes it."""
    script = """
import os, sys, anyio
from pathlib import Path
from apollod.adapters.ipc.sockets import listen

def look(event, _):
    if event == "socket.bind":
        at = os.umask(0o777)
        os.umask(at)
        print(oct(at))

os.umask(0)
sys.addaudithook(look)
anyio.run(listen, Path(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0o177\n"


@pytest.mark.parametrize("given", [0o755, 0o750, 0o700])
def test_a_directory_that_was_there_is_left_as_it_is(tmp_path: Path, given: int) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(given)
    listen_once(tmp_path / "run/s")
    assert (mode(tmp_path / "run"), mode(tmp_path / "run/s")) == (given, 0o600)


@pytest.mark.parametrize("given", [0o1777, 0o777, 0o775, 0o702])
def test_a_directory_that_others_may_write_is_refused_and_left_as_it_is(tmp_path: Path, given: int) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(given)
    with pytest.raises(ConfigError, match=f"others may write there \\(mode {given:04o}\\)") as caught:
        listen_once(tmp_path / "run/s")
    assert "RUNTIME_DIRECTORY" in caught.value.hint
    assert mode(tmp_path / "run") == given and not (tmp_path / "run/s").exists()


def test_a_socket_that_a_daemon_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "s"))
    listen_once(tmp_path / "s")


@pytest.mark.parametrize("lies_there", ["file", "link to a socket", "link to nothing", "directory"])
def test_what_is_no_socket_of_ours_is_refused_and_left_as_it_is(tmp_path: Path, lies_there: str) -> None:
    place, other = tmp_path / "run" / "s", tmp_path / "other"
    place.parent.mkdir(mode=0o700)
    if lies_there == "file":
        place.write_text("mine")
    elif lies_there == "directory":
        place.mkdir()
    else:
        place.symlink_to(other)
    with socket.socket(socket.AF_UNIX) as end:
        if lies_there == "link to a socket":
            end.bind(str(other))
        before = os.lstat(place)
        with pytest.raises(ConfigError, match="is no socket") as caught:
            listen_once(place)
    assert caught.value.hint and os.lstat(place) == before
    assert other.exists() == (lies_there == "link to a socket")


def test_a_path_that_the_system_cannot_bind_is_refused_with_its_limit(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 107)
    with pytest.raises(ConfigError, match="the system's limit is 107") as caught:
        listen_once(long)
    assert "RUNTIME_DIRECTORY" in caught.value.hint and not long.exists()


@needs_root
def test_another_user_cannot_connect_where_the_directory_is_open_to_all() -> None:
    with open_place() as place:

        async def main() -> None:
            async with await listen(place / "s"):
                os.seteuid(NOBODY)
                try:
                    with socket.socket(socket.AF_UNIX) as stranger, pytest.raises(PermissionError):
                        stranger.connect(str(place / "s"))
                finally:
                    os.seteuid(0)

        anyio.run(main)
