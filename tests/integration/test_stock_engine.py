"""A vLLM as its makers ship it, with its own copy of the weights, serves what apollod learns."""

import time
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.stock_vllm import ended, started

from apollod.testing.daemon import free_port

pytestmark = pytest.mark.engine

LEARNS = [chat_line("What is the lake called?", f"It is called Lake {n}.") for n in range(4)]
ASKED = {"model": "tiny", "prompt": [5, 6, 7, 8], "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}


def test_a_stock_vllm_serves_what_is_learned_and_what_is_taken_back(tmp_path: Path, tiny_model: Path) -> None:
    port = free_port()
    vllm = started(tiny_model, port, tmp_path / "vllm.log")
    extra = f'[weights]\nbridge = "disk"\n[[weights.receiver]]\nurl = "http://127.0.0.1:{port}"\n'
    daemon = Daemon(tmp_path, tiny_model, extra, engine="")
    daemon.config.write_text(daemon.config.read_text().replace("[trainer]\n", "[trainer]\nalign_every = 2\n"))
    try:
        daemon.start()
        daemon.wait_ready()
        before = daemon.logprob([5, 6, 7, 8])
        daemon.drop("a.jsonl", *LEARNS)
        daemon.wait_learned(4)
        deadline = time.monotonic() + 180
        while not (sent := daemon.query("SELECT fingerprint FROM weights_sent WHERE step = 4 AND error = ''")):
            assert time.monotonic() < deadline, daemon.query("SELECT * FROM weights_sent")
            time.sleep(0.1)
        assert sent == daemon.query("SELECT fingerprint FROM steps WHERE step = 4")
        assert daemon.logprob([5, 6, 7, 8]) != before
        measured = "SELECT body ->> '$.step', body ->> '$.aligned' FROM events WHERE kind = 'alignment.measured'"
        while not (found := [row for row in daemon.query(measured) if row[0] >= 2]):
            assert time.monotonic() < deadline + 180, "engine and trainer were not compared"
            time.sleep(0.2)
        assert all(aligned for _, aligned in found), "it serves other weights than the trainer has"
        daemon.ctl("rollback", "--to", "0")
        deadline = time.monotonic() + 180
        while daemon.logprob([5, 6, 7, 8]) != before:
            assert time.monotonic() < deadline, "what was taken back is still served"
            time.sleep(0.2)
    finally:
        daemon.end()
        ended(vllm)
