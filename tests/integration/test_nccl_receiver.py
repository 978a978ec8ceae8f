"""What of NCCL needs no GPU: the way to a group's id, out of the store of vLLM's own sender, and refusals before
anything is opened. Tensors over NCCL: `tests/gpu/test_nccl.py`, which takes two GPUs."""

import os
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from support.fork_server import fork_server

from apollod.adapters.system import nccl_library
from apollod.adapters.weight_receiver import WeightReceiver
from apollod.errors import NcclFailed, ReceiveFailed
from apollod.testing.daemon import free_port
from apollod.wire.receiver_messages import Join


def unique_id(address: str = "127.0.0.1") -> bytes:
    """An id as NCCL makes it: a random number, the socket address of rank 0, zeros."""
    at = socket.AF_INET.to_bytes(2, "little") + (50123).to_bytes(2, "big") + socket.inet_aton(address)
    return (os.urandom(8) + at).ljust(128, b"\0")


def wanted(port: int = 0, given: bytes = b"", timeout_s: float = 60.0, addresses: tuple[str, ...] = ()) -> Join:
    return Join(
        "" if given else "127.0.0.1", port, 1, 2, "vllm", "plain", timeout_s, "nccl", given, addresses
    )  # fmt: skip


def found(join: Join) -> bytes:
    from apollod.receiver.nccl_group import unique_id_of

    return unique_id_of(join, time.monotonic() + join.timeout_s)


def test_the_id_of_a_stock_sender_is_read_out_of_its_store() -> None:
    port, sent = free_port(), unique_id()
    sender = fork_server().start(["-m", "support.nccl_store", str(port), sent.hex()], os.environ)
    try:
        until = time.monotonic() + 180  # it imports vLLM
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < until and sender.poll() is None
                time.sleep(0.1)
        assert found(wanted(port)) == sent
    finally:
        sender.kill()
        sender.wait(20)


class Hostile:
    def __reduce__(self) -> object:
        return os.abort, ()


@contextmanager
def store(value: bytes | None) -> Iterator[int]:
    """A trainer's store, with this value where the id belongs."""
    from datetime import timedelta

    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = free_port()
    made = TCPStore("127.0.0.1", port, 2, True, timedelta(seconds=60), wait_for_workers=False)
    if value is not None:
        made.set("broadcast_from/0/0", value)
    yield port
    del made


def test_a_hostile_store_is_refused_and_runs_nothing() -> None:
    with store(pickle.dumps(Hostile())) as port, pytest.raises(ReceiveFailed, match="holds a pickle of something else"):
        found(wanted(port))
    with store(b"\x80\x04." * 5000) as port, pytest.raises(ReceiveFailed, match="holds a pickle of 15000 bytes"):
        found(wanted(port))


def test_a_store_without_an_id_is_told_after_the_time_limit() -> None:
    with store(None) as port, pytest.raises(ReceiveFailed, match="no id of an NCCL group") as refused:
        found(wanted(port, timeout_s=1.0))
    assert "gloo" in refused.value.hint


def test_an_id_leads_only_where_it_may() -> None:
    for own in (unique_id("127.0.0.1"), unique_id("127.4.5.6")):
        assert found(wanted(given=own)) == own
    away = unique_id("203.0.113.7")
    with pytest.raises(ReceiveFailed, match=r"leads to 203\.0\.113\.7, which is not on this machine") as refused:
        found(wanted(given=away))
    assert "[control] addresses" in refused.value.hint
    assert found(wanted(given=away, addresses=("203.0.113.7",))) == away


@pytest.mark.parametrize("by_id", [False, True], ids=["store", "id"])
def test_without_a_gpu_it_is_refused_before_anything_is_opened(tmp_path: Path, by_id: bool) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with socket.create_server(("127.0.0.1", 0)) as trainer:
        trainer.settimeout(0.2)
        port = trainer.getsockname()[1]

        async def join() -> None:
            receiver = WeightReceiver(tmp_path / "log")
            try:
                await receiver.join(wanted(given=unique_id()) if by_id else wanted(port))
            finally:
                await receiver.close()

        with pytest.raises(ReceiveFailed, match="needs a GPU, and torch finds none") as refused:
            anyio.run(join)
        assert "gloo" in refused.value.hint
        with pytest.raises(TimeoutError):
            trainer.accept()


def test_the_library_makes_ids_that_lead_here() -> None:
    """Also without a GPU, where there is one of NCCL's libraries (VLLM_NCCL_SO_PATH names it)."""
    from apollod.receiver.nccl_id import leads_to

    nccl_library.use_interface("lo")
    try:
        assert nccl_library.version() > 20000
    except NcclFailed as error:
        pytest.skip(error.line())
    made = nccl_library.new_id()
    leads = leads_to(made)
    assert leads.address.is_loopback
    socket.create_connection((str(leads.address), leads.port)).close()
    assert found(wanted(given=made)) == made
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(NcclFailed, match=r"failed: .*cuda error"):
            nccl_library.Communicator(made, 1, 2, time.monotonic() + 20)
