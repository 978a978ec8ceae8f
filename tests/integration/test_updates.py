"""Updates of the weights by an outside trainer: written as a step, repeated after a crash, taken back, or undone."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from support.commands import ran
from support.daemon import Daemon, chat_line
from support.fork_server import ForkedPopen
from support.invariants import check_stopped, journal_of
from support.replayed import replay

from apollod.adapters.ipc import offline_trainer
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.errors import ApolloError
from apollod.testing.daemon import free_port
from apollod.wire import messages as msg

EMBEDDING = "model.language_model.embed_tokens.weight"


def stored(model: Path) -> dict[str, torch.Tensor]:
    """All tensors of a model directory."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(model.glob("*.safetensors")):
        found |= load_file(file)
    return found


def sent(model: Path, directory: Path, number: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Weights of another trainer, as a directory; and what they are in the model's dtypes."""
    torch.manual_seed(number)
    weights = {name: (one.float() * 1.01 + 1e-3 * torch.randn(one.shape)) for name, one in stored(model).items()}
    directory.mkdir()
    save_file({name: one.to(dtype).contiguous() for name, one in weights.items()}, directory / "model.safetensors")
    return {name: one.to(dtype).to(stored(model)[name].dtype) for name, one in weights.items()}


def made(root: Path, model: Path, more: str = "") -> Daemon:
    outside = root / "outside"
    outside.mkdir(parents=True)
    return Daemon(root, model, f'[control]\nenabled = true\ndirectories = ["{outside}"]\nlease_s = 600\n{more}')


def learn(daemon: Daemon, number: int) -> None:
    """Learn one more example."""
    step = daemon.status()["step"]
    daemon.drop(f"{number}.jsonl", chat_line(f"what is {number}?", f"it is {number}."))
    daemon.wait(lambda s: s["step"] > step and s["running"] is None and not s["queue"]["pending"], "a step")


def refused(daemon: Daemon, request: Any) -> str:
    """What the daemon says to a request that it does not fulfil."""
    with pytest.raises(ApolloError) as raised:
        daemon.request(request)
    return raised.value.line()


def opened(daemon: Daemon) -> dict[str, Any]:
    return daemon.request(msg.UpdateOpenRequest("sglang", "a test"))


def updated(daemon: Daemon, directory: Path, label: str = "") -> dict[str, Any]:
    """Open, receive and commit."""
    opened(daemon)
    daemon.request(msg.UpdateDirectoryRequest(str(directory)))
    return daemon.request(msg.UpdateCommitRequest(label, whole=True), 120)


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path) -> Iterator[Daemon]:
    running = made(tmp_path / "d", tiny_model)
    try:
        running.start()
        running.wait_ready()
        yield running
    finally:
        running.end()


def test_it_is_written_learned_upon_repeated_after_a_crash_and_taken_back(
    daemon: Daemon, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn(daemon, 1)
    before = daemon.status()["weights"]["fingerprint"]
    weights = sent(tiny_model, daemon.root / "outside" / "one", 1)
    done = updated(daemon, daemon.root / "outside" / "one", "their-7")
    assert (done["version"], done["tensors"]) == (2, len(weights))
    status = daemon.status()
    assert status["step"] == 2 and status["weights"]["fingerprint"] == done["fingerprint"] != before
    assert status["updates"]["label"] == "their-7" and status["updates"]["lease"] is None
    lease = daemon.request(msg.LeaseRequest())
    assert (lease["label"], lease["labelled"], lease["version"]) == ("their-7", 2, 2)
    daemon.ctl("checkpoint")
    assert_equal(stored(daemon.model), weights)
    learn(daemon, 2)
    after = daemon.status()["weights"]["fingerprint"]
    daemon.kill()
    daemon.start()
    assert daemon.wait_ready()["weights"]["fingerprint"] == after
    assert not any(isinstance(one, ev.UpdateLost) for one in journal_of(daemon))
    daemon.ctl("rollback", "--to", "1")
    assert daemon.status()["weights"]["fingerprint"] == before
    committed = next(one for one in journal_of(daemon) if isinstance(one, ev.UpdateCommitted))
    daemon.ctl("relearn", committed.example)
    daemon.wait(lambda s: s["step"] == 4 and s["running"] is None, "the update again")
    assert daemon.status()["weights"]["fingerprint"] == done["fingerprint"]
    daemon.stop()
    check_stopped(daemon)
    code, told = replay(capsys, daemon.journal)
    assert (code, told["fingerprint"]) == (0, done["fingerprint"])
    code, told = replay(capsys, daemon.journal, "--without", committed.example)
    assert (code, told["fingerprint"]) == (0, before)
    assert ran("ctl", "journal", "verify", "--file", daemon.journal).returncode == 0
    (file,) = (daemon.root / "state" / "updates").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    found = ran("ctl", "journal", "verify", "--file", daemon.journal)
    assert found.returncode == 1 and "what the update of step" in found.stdout
    file.unlink()
    with patch.object(offline_trainer, "subprocess", ForkedPopen):
        assert main(["replay", "--config", str(daemon.config)]) == 1
    err = capsys.readouterr().err
    assert "its tensors" in err and "are not there" in err, err


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    differing = [name for name in wanted if not torch.equal(found[name], wanted[name])]
    assert differing == []


def changed(directory: Path, **tensors: torch.Tensor) -> Path:
    """A directory with these tensors only."""
    directory.mkdir()
    save_file({name.replace("__", "."): one for name, one in tensors.items()}, directory / "model.safetensors")
    return directory


def test_what_cannot_be_written_leaves_the_weights_and_says_why(daemon: Daemon, tiny_model: Path) -> None:
    """Each of these ends its update, with an event, and the weights are those of before."""
    weights, outside = stored(tiny_model), daemon.root / "outside"
    name, one = next((name, one) for name, one in weights.items() if one.ndim == 2)
    bad, short = one.clone().float(), one[:-1].contiguous()
    bad[0, 0] = float("nan")
    link = outside / "link"
    link.symlink_to("/usr")
    pickled = outside / "pickled"
    pickled.mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x02")
    linked = outside / "linked"
    linked.mkdir()
    (linked / "model.safetensors").symlink_to(tiny_model / "model.safetensors")
    lying = changed(outside / "lying", a=one)
    data = (lying / "model.safetensors").read_bytes()
    (lying / "model.safetensors").write_bytes(data[:-2])
    cases: list[tuple[Path, str, str]] = [
        (changed(outside / "unknown", nobody=one), "auto", "the model has no tensor 'nobody'"),
        (changed(outside / "short", **{name: short}), "auto", f"{name} has shape"),
        (changed(outside / "ints", **{name: one.to(torch.int32)}), "auto", f"{name} is int32"),
        (outside / "nothing", "auto", "holds neither model.safetensors nor"),
        (pickled, "auto", "holds neither model.safetensors nor"),
        (pickled, "pt", "load_format is 'pt'"),
        (link, "auto", "is not below a directory from which weights may be read"),
        (linked, "auto", "model.safetensors is a link"),
        (Path("outside"), "auto", "is not an absolute path"),
        (lying, "auto", "its header says"),
    ]
    before = daemon.status()["weights"]["fingerprint"]
    for directory, load_format, why in cases:
        opened(daemon)
        assert why in refused(daemon, msg.UpdateDirectoryRequest(str(directory), load_format)), directory
        assert "no update of the weights is open" in refused(daemon, msg.UpdateCommitRequest())
    opened(daemon)
    daemon.request(msg.UpdateDirectoryRequest(str(changed(outside / "nan", **{name: bad}))))
    assert f"{name} holds NaN or infinity" in refused(daemon, msg.UpdateCommitRequest())
    opened(daemon)
    daemon.request(msg.UpdateDirectoryRequest(str(changed(outside / "part", **{name: one}))))
    assert "tensors of the model did not come" in refused(daemon, msg.UpdateCommitRequest(whole=True))
    opened(daemon)
    assert "the update has no tensors" in refused(daemon, msg.UpdateCommitRequest())
    undone = [one.reason for one in journal_of(daemon) if isinstance(one, ev.UpdateUndone)]
    assert len(undone) == len(cases) + 3 and daemon.status()["weights"]["fingerprint"] == before
    assert daemon.status()["step"] == 0 and daemon.status()["state"] != "degraded"
    daemon.wait(lambda s: not list((daemon.root / "state" / "updates").iterdir()), "no file of these stays")


def test_one_at_a_time_and_nothing_is_learned_meanwhile(daemon: Daemon, tiny_model: Path) -> None:
    assert opened(daemon)["version"] == 0
    assert "a test updates the weights already (update 1)" in refused(daemon, msg.UpdateOpenRequest("vllm", "another"))
    daemon.drop("a.jsonl", chat_line("what is it?", "it is this."))
    status = daemon.wait(lambda s: s["queue"]["pending"] == 1 and s["activities"]["step"], "the example")
    assert status["activities"]["step"] == "a test updates the weights (update 1)"
    assert daemon.request(msg.LeaseRequest())["lease"]["by"] == "a test"
    assert daemon.request(msg.UpdateUndoRequest("enough", "ctl")) == {"schema_version": 1, "undone": True, "update": 1}
    assert daemon.wait(lambda s: s["step"] == 1, "the step")["updates"]["undone"] == 1
    assert daemon.request(msg.UpdateUndoRequest("again"))["undone"] is False
    daemon.ctl("pause")
    assert "paused by ctl" in refused(daemon, msg.UpdateOpenRequest("vllm", "another"))
    daemon.ctl("resume")
    weights = stored(tiny_model)
    name, one = next((name, one) for name, one in weights.items() if one.ndim == 2)
    opened(daemon)
    daemon.request(msg.UpdateDirectoryRequest(str(changed(daemon.root / "outside" / "one", **{name: one * 2}))))
    done = daemon.request(msg.UpdateCommitRequest(), 60)
    assert (done["tensors"], done["version"]) == (1, 2)
    daemon.ctl("checkpoint")
    assert torch.equal(stored(daemon.model)[name], one * 2)


def test_moments_begin_anew_if_the_settings_said_so_when_it_was_sent(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record says so, too: a crash and a replay do the same when the setting has changed."""
    after: dict[str, str] = {}
    for moments in ("keep", "reset"):
        daemon = made(tmp_path / moments, tiny_model, f'moments = "{moments}"\n')
        try:
            daemon.start()
            daemon.wait_ready()
            learn(daemon, 1)
            sent(tiny_model, daemon.root / "outside" / "one", 1)
            written = updated(daemon, daemon.root / "outside" / "one")
            learn(daemon, 2)
            after[moments] = daemon.status()["weights"]["fingerprint"]
            daemon.kill()
            other = daemon.config.read_text().replace(f'moments = "{moments}"', 'moments = "keep"')
            daemon.config.write_text(other)
            daemon.start()
            assert daemon.wait_ready()["weights"]["fingerprint"] == after[moments]
            daemon.stop()
            check_stopped(daemon)
            code, told = replay(capsys, daemon.journal)
            assert (code, told["fingerprint"]) == (0, after[moments])
            after[f"written, {moments}"] = written["fingerprint"]
        finally:
            daemon.end()
    assert after["written, keep"] == after["written, reset"] and after["keep"] != after["reset"]


@pytest.mark.parametrize("durable", ["checkpoint", "none"])
def test_a_crash_after_it(tmp_path: Path, tiny_model: Path, durable: str) -> None:
    """Only with `none` the weights go back to those before it, and what was learned since is taken back, too."""
    daemon = made(tmp_path / "d", tiny_model, f'durable = "{durable}"\n')
    try:
        daemon.start()
        daemon.wait_ready()
        learn(daemon, 1)
        before = daemon.status()["weights"]["fingerprint"]
        sent(tiny_model, daemon.root / "outside" / "one", 1, torch.bfloat16)
        done = updated(daemon, daemon.root / "outside" / "one")
        files = daemon.root / "state" / "updates"
        daemon.wait(lambda s: bool(list(files.iterdir())) is False, "its files")
        learn(daemon, 2)
        after = daemon.status()["weights"]["fingerprint"]
        daemon.kill()
        daemon.start()
        daemon.wait(lambda s: s["trainer"]["ready"] and s["rollback"] is None, "the trainer")
        lost = [one for one in journal_of(daemon) if isinstance(one, ev.UpdateLost)]
        found = daemon.status()["weights"]["fingerprint"]
        if durable == "none":
            assert [(one.step, one.to) for one in lost] == [(2, 1)] and found == before
            assert daemon.status()["step"] == 1
        else:
            assert lost == [] and found == after != done["fingerprint"]
        daemon.stop()
        check_stopped(daemon)
    finally:
        daemon.end()


def test_tensors_from_a_group_of_processes_in_buckets(daemon: Daemon, tiny_model: Path) -> None:
    """A sender that broadcasts all tensors in three calls; after a call that announces something else the group is
    gone, and nothing was written."""
    weights = {name: one.float() * 1.5 for name, one in stored(tiny_model).items()}
    with Sender(weights) as sender:
        joined = msg.UpdateJoinRequest("g", "127.0.0.1", sender.port, 1, 2, nested=False)
        by_nccl = msg.UpdateJoinRequest("g", "127.0.0.1", sender.port, 1, 2, "nccl")
        assert "backend 'nccl' is not served here: it needs a GPU" in refused(daemon, by_nccl)
        assert daemon.request(msg.LeaseRequest())["groups"] == []
        assert daemon.request(joined, 60)["group"] == "g"
        opened(daemon)
        names = list(weights)
        for part in (names[:5], names[5:6], names[6:]):
            sender.send(part)
            daemon.request(announced(part, weights), 60)
        done = daemon.request(msg.UpdateCommitRequest("1", whole=True), 60)
        assert (done["version"], done["tensors"]) == (1, len(weights))
        daemon.ctl("checkpoint")
        assert_equal(stored(daemon.model), {name: one.to(torch.bfloat16) for name, one in weights.items()})
        opened(daemon)
        assert "the model has no tensor 'nobody'" in refused(
            daemon, announced(["nobody"], {"nobody": weights[names[0]]})
        )
        assert daemon.request(msg.LeaseRequest())["groups"] == []
        opened(daemon)
        assert "no group 'g' was joined" in refused(daemon, announced(names[:1], weights))
        assert daemon.status()["weights"]["fingerprint"] == done["fingerprint"]


def announced(names: list[str], weights: dict[str, torch.Tensor]) -> msg.UpdateReceiveRequest:
    shapes = [list(weights[name].shape) for name in names]
    return msg.UpdateReceiveRequest("g", names, ["float32"] * len(names), shapes)


class Sender:
    """Rank 0 of a group of two, in this process: it broadcasts in a thread."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self._weights = weights
        self._thread = ThreadPoolExecutor(1)
        self.port = free_port()

    def __enter__(self) -> "Sender":
        limit = timedelta(seconds=60)
        self._store = dist.TCPStore("127.0.0.1", self.port, 2, True, limit, wait_for_workers=False)
        prefix = dist.PrefixStore("g", self._store)
        self._group = self._thread.submit(lambda: dist.ProcessGroupGloo(prefix, 0, 2, limit))
        return self

    def send(self, names: list[str]) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        for name in names:
            tensor = self._weights[name].contiguous()
            self._thread.submit(lambda tensor=tensor: self._group.result().broadcast([tensor], options).wait())

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
