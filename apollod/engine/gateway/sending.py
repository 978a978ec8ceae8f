"""Sends each announced version to all receivers, and again to one that was not there, while the trainer does not
write."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from apollod.core.inputs import WeightsSentReport
from apollod.engine.gateway.bridges import Bridge, Staged
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.weights import Weights
from apollod.engine.http.versions import Served
from apollod.errors import ApolloError, SendFailed
from apollod.wire.engine_terms import SentBy

logger = logging.getLogger("apollod.gateway")

WATCH_S = 1.0
WAIT_S = 30.0
AGAIN_S = 10.0
"""between attempts to bring a receiver up to date"""


class Sending:
    """One version at a time. The trainer writes only between `hold` and the next `refresh` (a fenced step), so the
    memory is one version whenever something is sent."""

    def __init__(
        self, name: SentBy, bridge: Bridge, weights: Weights, receivers: Iterable[Receiver], served: Served,
        report: Callable[[WeightsSentReport], None],
    ) -> None:  # fmt: skip
        self.receivers = tuple(receivers)
        self._name, self._bridge, self._weights, self._served, self._report = name, bridge, weights, served, report
        self._lock = asyncio.Lock()
        self._in_memory: tuple[int, bool] | None = None
        """the version in memory, and whether older prefixes are hidden from it; None while the trainer may write"""
        self._staged: Staged | None = None
        """the same version, once it can be delivered"""
        self._tried: dict[str, float] = {}
        """by URL, when it was last tried to deliver; without one, to stage"""

    async def hold(self) -> None:
        """Wait for a transfer that runs; from now on the trainer may write."""
        async with self._lock:
            self._in_memory = self._staged = None

    async def refresh(self, version: int, salted: bool) -> str:
        """Send the weights in memory to all receivers, one after another, so that the others go on serving. Returns
        the errors if none of them has it."""
        async with self._lock:
            self._in_memory, self._staged = (version, salted), None
            for receiver in self.receivers:
                receiver.version = None if receiver.version == version else receiver.version  # other bits, same number
            return await self._send(version, salted)

    async def _send(self, version: int, salted: bool) -> str:
        self._tried[""] = began = time.monotonic()
        try:
            staged = self._staged = await asyncio.to_thread(self._bridge.stage, self._weights, version)
        except (SendFailed, OSError) as failed:
            error = (
                failed.line() if isinstance(failed, ApolloError) else f"version {version} cannot be written: {failed}"
            )
            logger.warning("%s", error)
            for one in self.receivers:
                self._report(
                    WeightsSentReport(version, one.url, self._name, "", 0, time.monotonic() - began, 0.0, error)
                )
            return error
        announced = False

        def announce() -> None:
            nonlocal announced
            if not announced:
                announced = True
                self._served.announce(version, salted)

        errors = [await self._deliver(staged, one, announce) for one in self.receivers]
        announce()
        return "; ".join(errors) if all(errors) else ""

    def of_now(self) -> list[Receiver]:
        """Receivers to ask: those that have the announced version, and rather none that holds its generation."""
        ready = [one for one in self.receivers if one.version is not None and one.version == self._served.version]
        if not ready:  # the first one is loading it: requests wait there
            ready = [one for one in self.receivers if one.loading]
        ready = [one for one in ready if one.reachable] or ready
        return [one for one in ready if not one.loading] or ready

    async def ready(self) -> list[Receiver]:
        """The same, after waiting up to WAIT_S for a version that is on its way, as the first one after a start."""
        deadline = time.monotonic() + WAIT_S
        while not (found := self.of_now()) and time.monotonic() < deadline:
            if self._served.version is not None and not self._lock.locked():
                break
            await asyncio.sleep(0.05)
        return found

    async def watch(self) -> None:
        """Look after the receivers for ever: one that went away has no known weights, and is sent the present ones when
        it is back."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._staged is None and self._due(""):
                async with self._lock:
                    if self._in_memory is not None and self._staged is None:
                        await self._send(*self._in_memory)
            for one in self.receivers:
                if one.loading:
                    continue
                before, one.reachable = one.reachable, await one.answers()
                if not one.reachable and not one.loading:
                    if before:
                        logger.warning("%s is not reachable", one.url)
                    one.lost()
                elif self._behind(one):
                    await self._again(one)

    def _behind(self, receiver: Receiver) -> bool:
        return self._due(receiver.url) and self._staged is not None and receiver.version != self._staged.version

    def _due(self, what: str) -> bool:
        return time.monotonic() - self._tried.get(what, 0.0) >= AGAIN_S

    async def _again(self, receiver: Receiver) -> None:
        async with self._lock:
            if self._staged is not None and receiver.version != self._staged.version:
                await self._deliver(self._staged, receiver, lambda: None)

    async def _deliver(self, staged: Staged, receiver: Receiver, announce: Callable[[], None]) -> str:
        """Deliver and report; returns the error."""
        began, held, error = time.monotonic(), 0.0, ""
        self._tried[receiver.url] = began

        def loaded() -> None:
            receiver.version = staged.version
            announce()

        receiver.loading = True
        try:
            held = await self._bridge.deliver(staged, receiver, loaded)
        except (SendFailed, OSError) as failed:
            receiver.version = None
            error = _line(failed, receiver.url)
            logger.warning("version %d was not sent: %s", staged.version, error)
        finally:
            receiver.loading = False
        self._report(
            WeightsSentReport(
                staged.version, receiver.url, self._name, staged.fingerprint, staged.bytes,
                time.monotonic() - began, held, error, staged.carried, staged.left_out,
            )
        )  # fmt: skip
        return error


def _line(error: Exception, what: str) -> str:
    return error.line() if isinstance(error, ApolloError) else f"{what}: {error}"
