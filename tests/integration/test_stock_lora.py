"""A vLLM as its makers ship it keeps the model that it has loaded, and serves what apollod learns as adapters."""

import json
import time
import urllib.request
from pathlib import Path

import pytest
from support.daemon import Daemon, chat_line
from support.stock_vllm import LORA, ended, started

from apollod.testing.daemon import free_port

pytestmark = pytest.mark.engine

LEARNS = [chat_line("What is the lake called?", f"It is called Lake {n}.") for n in range(4)]
TEXT = [5, 6, 7, 8, 100, 200, 300, 77]


def listed(port: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as answer:
        return [one["id"] for one in json.loads(answer.read())["data"]]


def streamed(daemon: Daemon) -> str:
    """A streamed answer of eight tokens, as the client sees it."""
    body = {"model": "tiny", "prompt": TEXT, "max_tokens": 8, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(
        daemon.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(answer.read().decode())


def test_a_stock_vllm_serves_adapters_of_what_is_learned(tmp_path: Path, tiny_model: Path) -> None:
    port = free_port()
    vllm = started(tiny_model, port, tmp_path / "vllm.log", *LORA, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1")
    extra = f'[weights]\nbridge = "lora"\n[[weights.receiver]]\nurl = "http://127.0.0.1:{port}"\n'
    daemon = Daemon(tmp_path, tiny_model, extra, engine="")
    daemon.config.write_text(daemon.config.read_text().replace("[trainer]\n", "[trainer]\nalign_every = 2\n"))
    try:
        daemon.start()
        daemon.wait_ready()
        before = daemon.logprob(TEXT)
        daemon.drop("a.jsonl", *LEARNS)
        daemon.wait_learned(4)
        deadline = time.monotonic() + 180
        sent = "SELECT fingerprint, carried, left_out, bytes FROM weights_sent WHERE step = 4 AND error = ''"
        while not (found := daemon.query(sent)):
            assert time.monotonic() < deadline, daemon.query("SELECT * FROM weights_sent")
            time.sleep(0.1)
        (fingerprint, carried, left_out, _), *_ = found
        assert [(fingerprint,)] == daemon.query("SELECT fingerprint FROM steps WHERE step = 4")
        assert 0.0 < carried < 1.0 and left_out > 0
        assert daemon.query("SELECT carried, left_out FROM weights_sent WHERE step = 0")[0] == (1.0, 0)
        (status,) = daemon.status()["weights"]["receivers"]
        assert (status["carried"], status["left_out"]) == (carried, left_out)
        assert f"its adapter carries {carried:.0%} of the change" in daemon.ctl("status").stdout
        assert daemon.logprob(TEXT) != before
        text = streamed(daemon)
        assert text.count('"model":"tiny"') >= 8 and "apollo-v" not in text
        while len(listed(port)) != 2:  # the model and one adapter: that of the version before is gone
            assert time.monotonic() < deadline, listed(port)
            time.sleep(0.1)
        assert listed(port)[1].startswith("apollo-v4-")
        measured = "SELECT body ->> '$.step', body ->> '$.aligned' FROM events WHERE kind = 'alignment.measured'"
        while not (compared := [row for row in daemon.query(measured) if row[0] >= 2]):
            assert time.monotonic() < deadline + 180, "engine and trainer were not compared"
            time.sleep(0.2)
        assert all(aligned for _, aligned in compared), "it serves other weights than the trainer has"
        daemon.ctl("rollback", "--to", "0")
        deadline = time.monotonic() + 180
        while daemon.logprob(TEXT) != before:
            assert time.monotonic() < deadline, "what was taken back is still served"
            time.sleep(0.2)
    finally:
        daemon.end()
        ended(vllm)
