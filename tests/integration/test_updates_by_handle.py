"""An update whose tensors lie ready in shared memory is written, repeated after a crash, and replayed to the same bits;
whatever is wrong with a handle leaves the old weights."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from integration.test_updates import refused, stored
from support.daemon import Daemon
from support.invariants import check_stopped, journal_of
from support.replayed import replay

from apollod.core import events as ev
from apollod.sender import SharedSegment
from apollod.wire import messages as msg
from apollod.wire.tensor_handles import DeviceBytes, Handle, HostBytes

GROUP = "vllm"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Daemon]:
    """One for both tests, of which the first leaves its weights as they were."""
    running = Daemon(tmp_path_factory.mktemp("handle") / "d", tiny_model, "[control]\nenabled = true\nlease_s = 600\n")
    with running.serving():
        yield running


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    made = SharedSegment()
    yield made
    made.end()


def begun(daemon: Daemon) -> None:
    daemon.request(msg.UpdateJoinRequest(GROUP, "", 0, 0, 0, "tensor"))
    daemon.request(msg.UpdateOpenRequest("vllm", "a test"))


def handed(weights: dict[str, torch.Tensor], handles: list[Any]) -> msg.UpdateReceiveRequest:
    dtypes = [str(one.dtype).removeprefix("torch.") for one in weights.values()]
    return msg.UpdateReceiveRequest(
        GROUP, [*weights], dtypes, [list(one.shape) for one in weights.values()], handles=handles
    )


def laid(segment: SharedSegment, weights: dict[str, torch.Tensor]) -> list[Handle]:
    return [HostBytes(**one) for one in segment.handles(weights.values())]


def test_what_is_wrong_leaves_the_old_weights_and_nothing_behind(
    daemon: Daemon, tiny_model: Path, segment: SharedSegment
) -> None:
    name, one = next((name, one) for name, one in stored(tiny_model).items() if one.ndim == 2)
    before = daemon.status()["weights"]["fingerprint"]
    good = laid(segment, {name: one})
    bad = one.clone()
    bad[-1, -1] = float("inf")
    link = Path(f"/dev/shm/apollod-test-link-{os.getpid()}")
    link.symlink_to(segment.path)
    size = one.nbytes

    def host(file: str = segment.path, offset: int = 0, count: int = size) -> list[Handle]:
        return [HostBytes(file, offset, count)]

    cases: list[tuple[str, str, list[Handle], torch.Tensor, str]] = [
        ("beyond", name, host(offset=2), one, "lie outside"),
        ("length", name, host(count=size - 2), one, "its shape and dtype"),
        ("link", name, host(str(link)), one, "is a link"),
        ("elsewhere", name, host("/etc/passwd"), one, "lies where no weights are read"),
        ("gone", name, host("/dev/shm/apollod-nobody"), one, "cannot be opened"),
        ("unknown", "nobody", good, one, "the model has no tensor 'nobody'"),
        ("shape", name, good, one.T, f"{name} has shape"),
        ("dtype", name, good, one.to(torch.int16), f"{name} is int16"),
        ("device", name, [DeviceBytes(size, "GPU-0", bytes(64), 0, size)], one, "GPU-0 is not visible here"),
        ("number", name, [], one, "there is no group to receive from"),
    ]
    try:
        for what, named, handles, tensor, said in cases:
            begun(daemon)
            assert said in refused(daemon, handed({named: tensor}, handles)), what
            assert "no update of the weights is open" in refused(daemon, msg.UpdateCommitRequest()), what
        begun(daemon)
        daemon.request(handed({name: one}, laid(segment, {name: one})), 60)
        assert "holds NaN or infinity" in refused(daemon, handed({name: bad}, laid(segment, {name: bad})))
        assert daemon.request(msg.LeaseRequest())["groups"] == []
    finally:
        link.unlink()
    status = daemon.status()
    assert status["weights"]["fingerprint"] == before and status["updates"]["undone"] == len(cases) + 1
    assert status["step"] == 0 and status["state"] != "degraded"
    daemon.wait(lambda s: not list((daemon.root / "state" / "updates").iterdir()), "no file of these stays")


def test_it_is_written_repeated_after_a_crash_and_replayed(
    daemon: Daemon, tiny_model: Path, segment: SharedSegment, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two calls, of which the second one lies over the first; one dtype that is rounded, one that is not."""
    torch.manual_seed(1)
    old = stored(tiny_model)
    weights = {name: one + (0.01 * torch.randn(one.shape)).to(one.dtype) for name, one in old.items()}
    weights = {name: one.float() if number % 2 else one for number, (name, one) in enumerate(weights.items())}
    begun(daemon)
    names = list(weights)
    for part in (names[:5], names[5:]):
        tensors = {name: weights[name] for name in part}
        daemon.request(handed(tensors, laid(segment, tensors)), 60)
    segment.end()
    done = daemon.request(msg.UpdateCommitRequest("1", whole=True), 60)
    assert (done["version"], done["tensors"]) == (1, len(weights))
    assert {one.way for one in journal_of(daemon) if isinstance(one, ev.UpdateReceived)} == {"tensor"}
    daemon.kill()
    daemon.start()
    assert daemon.wait_ready()["weights"]["fingerprint"] == done["fingerprint"]
    daemon.ctl("checkpoint")
    found = stored(daemon.model)
    assert [name for name in old if not torch.equal(found[name], weights[name].to(old[name].dtype))] == []
    daemon.stop()
    check_stopped(daemon)
    code, told = replay(capsys, daemon.journal)
    assert (code, told["fingerprint"]) == (0, done["fingerprint"])
