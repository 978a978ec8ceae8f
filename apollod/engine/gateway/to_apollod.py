"""Sends weights to another apollod, as an update by an outside trainer (`[control] enabled` there): by gloo, or through
shared memory of one machine."""

import threading
from collections.abc import Callable, Iterator
from typing import Literal

import anyio
from torch import Tensor

from apollod.engine.gateway.bridges import Bridge, Staged
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.errors import SendFailed
from apollod.sender import Sender, SendRefused
from apollod.wire.engine_terms import SendTerms

CHUNK_BYTES = 256 << 20
"""announced at once; of shared memory, a segment of this size for each receiver, or of the largest tensor's"""


class ToApollod(Bridge):
    """One connection to each receiver. That one checks the tensors, holds its generation, and keeps the old weights if
    anything fails."""

    def __init__(self, terms: SendTerms, by: Literal["gloo", "tensor"], weights: Weights) -> None:
        self._weights = weights
        self._in_use = threading.Lock()  # a sender is for one thread
        self._senders = {
            one.url: Sender(one.url, one.api_key, CHUNK_BYTES, terms.timeout_s, by) for one in terms.receivers
        }

    def stage(self, weights: Weights, version: int) -> Staged:
        """Nothing is written: the tensors are sent from the trainer's memory, which rests meanwhile."""
        return Staged(version, weights.fingerprint(), sum(weights.tensors[name].bytes for name in weights.changing))

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """Send all tensors that can change."""
        sender = self._senders[receiver.url]
        try:
            await anyio.to_thread.run_sync(self._send, sender, str(staged.version))
        except SendRefused as refused:
            hint = "see its log; docs/control.md says what it accepts"
            raise SendFailed(f"{receiver.url}: {refused}", hint) from refused
        loaded()
        return 0.0  # the receiver holds its own generation, and journals for how long

    def close(self) -> None:
        """Leave the receivers' groups and remove the segments of shared memory, unless a version is being sent."""
        if self._in_use.acquire(blocking=False):
            for sender in self._senders.values():
                sender.close()

    def _send(self, sender: Sender, label: str) -> None:
        with self._in_use:
            sender.send(self._tensors(), label)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name in self._weights.changing:
            yield name, self._weights.tensor(name)
