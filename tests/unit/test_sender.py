"""Where `apollod.sender` listens: at the one address by which the daemon reaches it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.listening import addresses_of

from apollod.receiver import gloo_group
from apollod.sender import GlooGroup, SendRefused, _address_towards
from apollod.wire.receiver_messages import Join


def outward() -> str:
    """The address by which other machines reach this one; empty if there is none."""
    try:
        return _address_towards("http://203.0.113.1:8000")  # TEST-NET-3: nothing is sent there
    except SendRefused:
        return ""


OUTWARD = outward()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        pytest.param(OUTWARD, marks=pytest.mark.skipif(not OUTWARD, reason="this machine has no other address")),
    ],
)
def test_store_and_group_are_at_the_address_that_is_announced_and_nowhere_else(address: str) -> None:
    before = addresses_of(os.getpid())
    group = GlooGroup("weights", 20.0, address)
    place = group.init_info
    assert (place["master_address"], place["backend"]) == (address, "gloo")
    wanted = Join(place["master_address"], place["master_port"], 1, 2, "weights", "plain", 20.0)
    sent, received = torch.arange(5.0), torch.zeros(5)
    with ThreadPoolExecutor(1) as thread:
        joined = thread.submit(gloo_group.join, wanted)
        group.complete()
        other = joined.result()
        receipt = thread.submit(other.receive, received, time.monotonic() + 20)
        group.broadcast(sent)
        receipt.result()
    assert torch.equal(sent, received)
    assert addresses_of(os.getpid()) - before == {address} - before
    group.end()


def test_the_address_is_the_one_on_the_way_to_the_daemon() -> None:
    assert _address_towards("http://127.0.0.1:8000") == _address_towards("http://localhost:8000") == "127.0.0.1"
    with pytest.raises(SendRefused, match="leads nowhere"):
        _address_towards("http://no-such-host.invalid:8000")
