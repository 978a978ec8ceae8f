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


def undone(daemon: Daemon) -> int:
    """Number of updates that ended without a change."""
    return sum(isinstance(one, ev.UpdateUndone) for one in journal_of(daemon))


def updated(daemon: Daemon, directory: Path, label: str = "") -> dict[str, Any]:
    """Open, receive and commit."""
    opened(daemon)
    daemon.request(msg.UpdateDirectoryRequest(str(directory)))
    return daemon.request(msg.UpdateCommitRequest(label, whole=True), 120)


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path) -> Iterator[Daemon]:
    running = made(tmp_path / "d", tiny_model)
    with running.serving():
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Daemon]:
    """One for tests that leave it at rest, whatever its step is."""
    running = made(tmp_path_factory.mktemp("shared") / "d", tiny_model)
    with running.serving():
        yield running


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


def test_what_cannot_be_written_leaves_the_weights_and_says_why(shared: Daemon, tiny_model: Path) -> None:
    """Each of these ends its update, with an event, and the weights are those of before."""
    weights, outside = stored(tiny_model), shared.root / "outside"
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
    before, known = shared.status(), undone(shared)
    for directory, load_format, why in cases:
        opened(shared)
        assert why in refused(shared, msg.UpdateDirectoryRequest(str(directory), load_format)), directory
        assert "no update of the weights is open" in refused(shared, msg.UpdateCommitRequest())
    opened(shared)
    shared.request(msg.UpdateDirectoryRequest(str(changed(outside / "nan", **{name: bad}))))
    assert f"{name} holds NaN or infinity" in refused(shared, msg.UpdateCommitRequest())
    opened(shared)
    shared.request(msg.UpdateDirectoryRequest(str(changed(outside / "part", **{name: one}))))
    assert "tensors of the model did not come" in refused(shared, msg.UpdateCommitRequest(whole=True))
    opened(shared)
    assert "the update has no tensors" in refused(shared, msg.UpdateCommitRequest())
    now = shared.status()
    assert undone(shared) - known == len(cases) + 3
    assert now["weights"]["fingerprint"] == before["weights"]["fingerprint"] and now["step"] == before["step"]
    assert now["state"] != "degraded"
    shared.wait(lambda s: not list((shared.root / "state" / "updates").iterdir()), "no file of these stays")


def test_one_at_a_time_and_nothing_is_learned_meanwhile(shared: Daemon, tiny_model: Path) -> None:
    step, known = shared.status()["step"], undone(shared)
    begun = opened(shared)
    assert begun["version"] == step
    number = begun["update"]
    assert f"a test updates the weights already (update {number})" in refused(
        shared, msg.UpdateOpenRequest("vllm", "another")
    )
    shared.drop("a.jsonl", chat_line("what is it?", "it is this."))
    status = shared.wait(lambda s: s["queue"]["pending"] == 1 and s["activities"]["step"], "the example")
    assert status["activities"]["step"] == f"a test updates the weights (update {number})"
    assert shared.request(msg.LeaseRequest())["lease"]["by"] == "a test"
    done = shared.request(msg.UpdateUndoRequest("enough", "ctl"))
    assert done == {"schema_version": 1, "undone": True, "update": number}
    assert shared.wait(lambda s: s["step"] == step + 1, "the step")["updates"]["undone"] == known + 1
    assert shared.request(msg.UpdateUndoRequest("again"))["undone"] is False
    shared.ctl("pause")
    assert "paused by ctl" in refused(shared, msg.UpdateOpenRequest("vllm", "another"))
    shared.ctl("resume")
    weights = stored(tiny_model)
    name, one = next((name, one) for name, one in weights.items() if one.ndim == 2)
    opened(shared)
    shared.request(msg.UpdateDirectoryRequest(str(changed(shared.root / "outside" / "one", **{name: one * 2}))))
    done = shared.request(msg.UpdateCommitRequest(), 60)
    assert (done["tensors"], done["version"]) == (1, step + 2)
    shared.ctl("checkpoint")
    assert torch.equal(stored(shared.model)[name], one * 2)


def test_moments_begin_anew_if_the_settings_said_so_when_it_was_sent(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record says so, too: a crash and a replay do the same when the setting has changed. That they do so where
    moments are kept is shown above."""
    after: dict[str, str] = {}
    for moments in ("keep", "reset"):
        daemon = made(tmp_path / moments, tiny_model, f'moments = "{moments}"\n')
        try:
            daemon.start()
            daemon.wait_ready()
            learn(daemon, 1)
            sent(tiny_model, daemon.root / "outside" / "one", 1)
            after[f"written, {moments}"] = updated(daemon, daemon.root / "outside" / "one")["fingerprint"]
            learn(daemon, 2)
            after[moments] = daemon.status()["weights"]["fingerprint"]
            if moments == "reset":
                daemon.kill()
                daemon.config.write_text(daemon.config.read_text().replace('"reset"', '"keep"'))
                daemon.start()
                assert daemon.wait_ready()["weights"]["fingerprint"] == after[moments]
                daemon.stop()
                check_stopped(daemon)
                code, told = replay(capsys, daemon.journal)
                assert (code, told["fingerprint"]) == (0, after[moments])
        finally:
            daemon.end()
    assert after["written, keep"] == after["written, reset"] and after["keep"] != after["reset"]


def test_a_crash_after_its_files_were_removed(tmp_path: Path, tiny_model: Path) -> None:
    """Only with `none` the weights go back to those before it, and what was learned since is taken back, too. One
    daemon, first with `checkpoint` and from its first crash on with `none`: what counts is the setting of an update's
    time."""
    daemon = made(tmp_path / "d", tiny_model, 'durable = "checkpoint"\n')
    files = daemon.root / "state" / "updates"
    try:
        daemon.start()
        daemon.wait_ready()
        for number, durable in enumerate(("checkpoint", "none")):
            learn(daemon, 2 * number)
            before = daemon.status()
            sent(tiny_model, daemon.root / "outside" / durable, number, torch.bfloat16)
            done = updated(daemon, daemon.root / "outside" / durable)
            daemon.wait(lambda s: bool(list(files.iterdir())) is False, "its files")
            learn(daemon, 2 * number + 1)
            after = daemon.status()["weights"]["fingerprint"]
            daemon.kill()
            daemon.config.write_text(daemon.config.read_text().replace('"checkpoint"', '"none"'))
            daemon.start()
            daemon.wait(lambda s: s["trainer"]["ready"] and s["rollback"] is None, "the trainer")
            lost = [one for one in journal_of(daemon) if isinstance(one, ev.UpdateLost)]
            found = daemon.status()
            if durable == "none":
                assert [(one.step, one.to) for one in lost] == [(done["version"], before["step"])]
                assert found["weights"]["fingerprint"] == before["weights"]["fingerprint"]
                assert found["step"] == before["step"]
            else:
                assert lost == [] and found["weights"]["fingerprint"] == after != done["fingerprint"]
        daemon.stop()
        check_stopped(daemon)
    finally:
        daemon.end()


def test_tensors_from_a_group_of_processes_in_buckets(shared: Daemon, tiny_model: Path) -> None:
    """A sender that broadcasts all tensors in three calls; after a call that announces something else the group is
    gone, and nothing was written."""
    step = shared.status()["step"]
    weights = {name: one.float() * 1.5 for name, one in stored(tiny_model).items()}
    with Sender(weights) as sender:
        joined = msg.UpdateJoinRequest("g", "127.0.0.1", sender.port, 1, 2, nested=False)
        by_nccl = msg.UpdateJoinRequest("g", "127.0.0.1", sender.port, 1, 2, "nccl")
        assert "backend 'nccl' is not served here: it needs a GPU" in refused(shared, by_nccl)
        assert shared.request(msg.LeaseRequest())["groups"] == []
        assert shared.request(joined, 60)["group"] == "g"
        opened(shared)
        names = list(weights)
        for part in (names[:5], names[5:6], names[6:]):
            sender.send(part)
            shared.request(announced(part, weights), 60)
        done = shared.request(msg.UpdateCommitRequest("1", whole=True), 60)
        assert (done["version"], done["tensors"]) == (step + 1, len(weights))
        shared.ctl("checkpoint")
        assert_equal(stored(shared.model), {name: one.to(torch.bfloat16) for name, one in weights.items()})
        opened(shared)
        assert "the model has no tensor 'nobody'" in refused(
            shared, announced(["nobody"], {"nobody": weights[names[0]]})
        )
        assert shared.request(msg.LeaseRequest())["groups"] == []
        opened(shared)
        assert "no group 'g' was joined" in refused(shared, announced(names[:1], weights))
        assert shared.status()["weights"]["fingerprint"] == done["fingerprint"]


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
