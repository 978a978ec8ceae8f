"""The sender's shared memory: what lies there is what was handed over, and it goes whatever becomes of the sender."""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from support.fork_server import fork_server

from apollod.sender import Sender, SendRefused, SharedSegment


def test_tensors_of_any_form_lie_there_contiguous() -> None:
    base = torch.arange(24, dtype=torch.float32).view(4, 6)
    tensors = [base.T, base[:, ::2], torch.tensor(3.0, dtype=torch.bfloat16), torch.empty(0, 2), base.requires_grad_()]
    segment = SharedSegment()
    try:
        for _ in range(2):  # over those before
            handles = segment.handles(tensors)
            data = Path(segment.path).read_bytes()
            for tensor, one in zip(tensors, handles, strict=True):
                wanted = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                assert data[one["offset"] : one["offset"] + one["bytes"]] == wanted
        assert Path(segment.path).stat().st_mode & 0o777 == 0o600
        segment.trim(1 << 20)
        assert Path(segment.path).stat().st_size == len(data)
        segment.trim(5)
        assert Path(segment.path).stat().st_size == 5
    finally:
        segment.end()
    assert not Path(segment.path).exists()


def test_it_goes_with_its_object() -> None:
    segment = SharedSegment()
    path = Path(segment.path)
    assert path.exists()
    del segment
    gc.collect()
    assert not path.exists()


LEFT = """
import os, sys, torch
from apollod.sender import SharedSegment
segment = SharedSegment(sys.argv[1])
segment.handles([torch.ones(1000)])
if os.fork() == 0:
    del segment
    os._exit(0)
os.wait()
print(segment.path if os.path.exists(segment.path) else "gone with the child", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["by itself", "by SIGKILL"])
def test_it_goes_with_its_program(ends: str, tmp_path: Path) -> None:
    """One of a killed program is removed by the next one; one of a program that lives is not. In a directory of its
    own: another test's program would be the next one."""
    (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
    if ends == "by SIGKILL":
        program: Any = fork_server().start(["-c", LEFT, str(tmp_path)], os.environ, (their_in, their_out, 2))
    else:  # started, not forked: what an interpreter does at its end is what counts
        program = subprocess.Popen([sys.executable, "-c", LEFT, str(tmp_path)], stdin=their_in, stdout=their_out)
    for end in (their_in, their_out):
        os.close(end)
    try:
        with open(our_out) as out:
            path = Path(out.readline().strip())
        assert path.is_absolute()
        SharedSegment(str(tmp_path)).end()
        assert path.exists()
        if ends == "by SIGKILL":
            program.send_signal(signal.SIGKILL)
        os.close(our_in)
        program.wait(60)
        assert path.exists() == (ends == "by SIGKILL")
        SharedSegment(str(tmp_path)).end()
        assert not path.exists()
    finally:
        program.kill()
        program.wait()


def test_shared_memory_without_room_is_said(tmp_path: Path) -> None:
    segment = SharedSegment()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
    try:
        with pytest.raises(SendRefused, match=r"cannot hold 40 bytes .*; use smaller chunk_bytes, or bridge gloo"):
            segment.handles([torch.ones(10)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        segment.end()
    with pytest.raises(SendRefused, match="gone cannot be written"):
        SharedSegment(str(tmp_path / "gone"))


class Answering:
    """A server that keeps the sizes of what is handed over, and refuses what it is told to."""

    def __init__(self) -> None:
        self.refuses = ""
        self.calls: list[str] = []
        self.sizes: list[int] = []
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answering.calls.append(self.path)
                if self.path == "/update_weights":
                    handles = body["update_info"]["handles"]
                    answering.sizes.append(sum(one["bytes"] for one in handles))
                    assert {os.stat(one["file"]).st_uid for one in handles} == {os.getuid()}
                data = b'{"error": {"message": "no"}}' if self.path == answering.refuses else b"{}"
                self.send_response(500 if self.path == answering.refuses else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def there() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.server.shutdown()
    made.server.server_close()


def segments() -> set[str]:
    return {one.name for one in Path("/dev/shm").glob("apollod-sender-*")}


def test_chunks_are_as_large_as_said_and_a_larger_tensor_goes_alone(there: Answering) -> None:
    before = segments()
    with Sender(there.url, chunk_bytes=100, bridge="tensor") as sender:
        sender.send([(str(number), torch.zeros(size)) for number, size in enumerate([10, 10, 10, 100, 1])])
        assert there.sizes == [80, 40, 400, 4]
        (mine,) = segments() - before
        assert Path("/dev/shm", mine).stat().st_size == 100  # what the larger one took was given back
    assert segments() == before and there.calls[-1] == "/shutdown_weight_transfer_engine"


@pytest.mark.parametrize("refuses", ["/init_weight_transfer_engine", "/update_weights", "/finish_weight_update"])
def test_a_failure_removes_it_and_the_next_update_makes_another(there: Answering, refuses: str) -> None:
    before = segments()
    with Sender(there.url, bridge="tensor") as sender:
        there.refuses = refuses
        with pytest.raises(SendRefused, match="no"):
            sender.send([("a", torch.ones(3))])
        assert segments() == before
        there.refuses = ""
        sender.send([("a", torch.ones(3))])
        assert there.calls.count("/init_weight_transfer_engine") == 2
    assert segments() == before


def test_an_unknown_bridge_is_refused() -> None:
    with pytest.raises(ValueError, match="use gloo or tensor"):
        Sender("http://127.0.0.1:1", bridge="pigeon")  # type: ignore[arg-type]
