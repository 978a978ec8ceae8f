"""A real vLLM whose weights other trainers write: by vLLM's own client, unmodified, and by `apollod.sender`."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from safetensors.torch import load_file
from support.daemon import VLLM, Daemon, chat_line
from support.effort import LONG
from support.invariants import check_stopped, journal_of

from apollod.core import events as ev
from apollod.sender import SEGMENT, GlooGroup, Sender, SendRefused
from apollod.trainer.bind import live_fingerprint

pytestmark = pytest.mark.engine

STEPS = 20 if LONG else 8
PLANTED = {3: "nan", 6: "gone"}
"""steps before which an update fails: a tensor with NaN, or a trainer that ends in the middle"""


@pytest.fixture(scope="module")
def daemon(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Its tests run in order: the last one stops it."""
    made = Daemon(tmp_path_factory.mktemp("d"), tiny_model, "[control]\nenabled = true\nreceive_s = 20\n", VLLM)
    with made.serving():
        yield made


class User:
    """Asks again and again, in a thread, until it is told to stop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._stopped, self.answers = daemon, threading.Event(), 0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stopped.is_set():
            body = {"model": "tiny", "prompt": "hello", "max_tokens": 4}
            assert self._daemon.post("/v1/completions", body)[0] == 200
            self.answers += 1
            self._stopped.wait(0.05)

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self.answers


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    found = ((name, live_fingerprint.tensor_fingerprint(one)) for name, one in weights.items())
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


def stored(model: Path) -> dict[str, torch.Tensor]:
    return {name: one for file in sorted(model.glob("*.safetensors")) for name, one in load_file(file).items()}


@pytest.mark.parametrize("bridge", ["gloo", "tensor"])
def test_the_sender_of_our_own(daemon: Daemon, tiny_model: Path, bridge: Any) -> None:
    before, weights = len(daemon.query("SELECT seq FROM updates")), stored(tiny_model)
    half = {name: (one.float() / 2).to(one.dtype) for name, one in weights.items()}
    bad = {name: torch.full_like(one, torch.inf) for name, one in list(weights.items())[-1:]}
    with Sender(daemon.url, chunk_bytes=1 << 20, timeout_s=60, bridge=bridge) as sender:
        sender.send(((name, one.float() / 2) for name, one in weights.items()), "half")
        status = daemon.status()
        assert (status["updates"]["label"], status["weights"]["fingerprint"]) == ("half", fingerprint(half))
        with pytest.raises(SendRefused, match="the model has no tensor 'nobody'"):
            sender.send([("nobody", torch.zeros(3))])
        with pytest.raises(SendRefused, match="holds NaN or infinity"):
            sender.send([*list(weights.items())[:-1], *bad.items()])
        assert daemon.status()["weights"]["fingerprint"] == fingerprint(half)
        sender.send(weights.items(), "whole")
        assert daemon.status()["weights"]["fingerprint"] == fingerprint(weights)
    states = [row[0] for row in daemon.query("SELECT state FROM updates ORDER BY seq")]
    assert states[before:] == ["committed", "undone", "undone", "committed"]


@pytest.mark.parametrize("bridge", ["gloo", "tensor"])
def test_another_apollod_whose_engine_this_is(daemon: Daemon, tiny_model: Path, tmp_path: Path, bridge: str) -> None:
    """`[weights] bridge` there: what it learns is served here, and is an update of this journal."""
    extra = f'[weights]\nbridge = "{bridge}"\n[[weights.receiver]]\nurl = "{daemon.url}"\n'
    other = Daemon(tmp_path, tiny_model, extra, engine="")
    try:
        other.start().wait_ready()
        other.drop("a.jsonl", chat_line("what is that?", f"that is that by {bridge}."))
        learned = other.wait_learned(1)["weights"]["fingerprint"]
        daemon.wait(lambda s: s["updates"]["label"] == "1", "the weights of the other one")
        assert daemon.status()["weights"]["fingerprint"] == learned
        (receiver,) = other.wait(lambda s: [1] == [r["step"] for r in s["weights"]["receivers"]], "its word for it")[
            "weights"
        ]["receivers"]
        assert (receiver["url"], receiver["error"]) == (daemon.url, "")
        ids = [5, 6, 7, 8]
        assert other.logprob(ids) == daemon.logprob(ids)
        left = segments_of(other.status()["engine"]["pid"])
        assert len(left) == (bridge == "tensor")
    finally:
        other.end()
    assert not [path for path in left if path.exists()]


def segments_of(pid: int) -> list[Path]:
    """Segments of shared memory that a process has open."""
    paths = [each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir()]
    return [path for path in paths if path.name.startswith(SEGMENT)]


def test_versions_by_the_client_of_vllm_are_served_bit_by_bit_under_load(daemon: Daemon, tiny_model: Path) -> None:
    """`HTTPVLLMWeightSyncClient`, unmodified, as vLLM's own trainer engines call it; two updates in between fail, and
    change nothing."""
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

    weights, user = stored(tiny_model), User(daemon)
    client = HTTPVLLMWeightSyncClient(daemon.url, timeout=60)
    first, failed = daemon.status()["step"], daemon.status()["updates"]["undone"]
    with ThreadPoolExecutor(1) as thread:
        group = joined(client, thread)
        for step in range(1, STEPS + 1):
            before = daemon.status()
            if (fails := PLANTED.get(step)) is not None:
                with pytest.raises(requests.HTTPError, match="500"):
                    update(client, thread, group, weights, fails)
                now = daemon.wait(lambda s: s["updates"]["lease"] is None, "the end of the update")
                assert now["weights"]["fingerprint"] == before["weights"]["fingerprint"]
                group = joined(client, thread)
            torch.manual_seed(step)
            weights = {name: one + (0.01 * torch.randn(one.shape)).to(one.dtype) for name, one in weights.items()}
            update(client, thread, group, weights)
            assert daemon.status()["weights"]["fingerprint"] == fingerprint(weights), step
            assert daemon.status()["weights"]["served"] == first + step
    assert user.stop() > STEPS
    client.shutdown_weight_transfer_engine()
    daemon.drop("a.jsonl", chat_line("what is it?", "it is this."))
    daemon.wait(lambda s: s["step"] == first + STEPS + 1, "a step of our own on top of them")
    daemon.ctl("rollback", "--to", "3")
    daemon.stop()
    check_stopped(daemon)
    undone = [one.reason for one in journal_of(daemon) if isinstance(one, ev.UpdateUndone)]
    assert len(undone) == failed + len(PLANTED), undone


def joined(client, thread: ThreadPoolExecutor) -> GlooGroup:
    group = GlooGroup("vllm", 60.0)
    told = thread.submit(client.init_weight_transfer_engine, {**group.init_info, "packed": False})
    group.complete()
    told.result()
    return group


def update(
    client, thread: ThreadPoolExecutor, group: GlooGroup, weights: dict[str, torch.Tensor], fails: str = ""
) -> None:
    """One update in two calls, as a trainer with a buffer sends it."""
    client.start_weight_update()
    names = list(weights)
    for number, part in enumerate((names[:20], names[20:])):
        info = {
            "names": part, "dtype_names": [str(weights[name].dtype).removeprefix("torch.") for name in part],
            "shapes": [list(weights[name].shape) for name in part],
        }  # fmt: skip
        told = thread.submit(client.update_weights, info)
        with suppress(RuntimeError):  # the other side is gone; its answer says why
            for name in part:
                tensor = weights[name]
                if fails and number and name == part[3]:
                    if fails == "gone":
                        group.end()
                        break
                    tensor = torch.full_like(tensor, torch.nan)
                group.broadcast(tensor)
        told.result()
    client.finish_weight_update()
