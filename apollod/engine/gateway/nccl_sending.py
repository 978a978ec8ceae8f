"""Sends weights to stock engines elsewhere by NCCL: from the trainer's memory on a GPU here to the GPUs there, one
broadcast a tensor, without a file.

The order of calls, and what they announce, was run against a server of the tests, with gloo in the channels' place;
NCCL's own calls (`nccl_channel`) were not run: they take two GPUs. Source: vllm/entrypoints/rl/online/api_router.py
and distributed/weight_transfer/nccl_engine.py (0.32); SGLang's srt/entrypoints/http_server.py (0.5.23).
"""

from collections.abc import Callable
from typing import Any, Protocol

import anyio
import anyio.to_thread
from torch import Tensor

from apollod.engine.gateway.bridges import Bridge, Staged
from apollod.engine.gateway.receivers import CONTROL_S, Receiver
from apollod.engine.gateway.weights import Weights
from apollod.errors import ApolloError, SendFailed
from apollod.wire.engine_terms import ReceiverTerms, SendTerms

GROUP = "apollod"
"""the group's name in SGLang's dialect"""
WORKERS_MAX = 65535
BEGINS = (0, 5, 23)
"""SGLang's first version that wants an update to be begun and ended"""


class Channel(Protocol):
    """Rank 0 of a group with all workers of one engine elsewhere. What blocks raises an ApolloError when it fails,
    takes too long, or was ended meanwhile."""

    def place(self) -> dict[str, Any]:
        """The fields by which the others find the group, in the words of the engine's dialect."""

    def complete(self) -> None:
        """Wait until all have joined. Blocks."""

    def broadcast(self, tensor: Tensor) -> None:
        """Send a tensor, and wait until it has been sent. Blocks."""

    def end(self) -> None:
        """Leave the group; what blocks in another thread ends."""


Channels = Callable[[ReceiverTerms, int], Channel]
"""makes a channel to an engine, for a group of so many processes"""


class Nccl(Bridge):
    """One group for each engine, joined before the first version and again after a failure."""

    def __init__(self, terms: SendTerms, weights: Weights, channels: Channels) -> None:
        self._weights, self._timeout_s, self._make = weights, terms.timeout_s, channels
        self._channels: dict[str, Channel] = {}

    def stage(self, weights: Weights, version: int) -> Staged:
        """Nothing is written: the tensors are sent from the trainer's memory, which rests meanwhile."""
        return Staged(version, weights.fingerprint(), sum(weights.tensors[name].bytes for name in weights.changing))

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """Send all tensors that can change. After a failure the engine may have a part of them, and the group is left:
        its weights are not known until it has been sent a version as a whole."""
        stock = _Vllm(receiver) if receiver.terms.dialect == "vllm" else _Sglang(receiver)
        channel = self._channels.get(receiver.url) or await self._joined(stock)
        held = anyio.current_time()
        try:
            await stock.begin()
            path, body = stock.update(self._announced(), staged.version)
            await self._beside(receiver, channel, path, body, lambda: self._broadcast(channel))
            await stock.end(staged.version, self._timeout_s)
            loaded()
        except BaseException:
            self._channels.pop(receiver.url, None)
            channel.end()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await receiver.go_on()
        return anyio.current_time() - held

    async def _joined(self, stock: "_Vllm | _Sglang") -> Channel:
        """A complete group, formed while generation goes on."""
        receiver = stock.receiver
        size = 1 + await stock.workers()
        try:
            channel = await anyio.to_thread.run_sync(self._make, receiver.terms, size)
        except ApolloError as failed:
            raise _of(receiver, failed) from failed
        try:
            path, body = stock.join(channel.place(), size)
            await self._beside(receiver, channel, path, body, channel.complete)
        except BaseException:
            channel.end()
            raise
        self._channels[receiver.url] = channel
        return channel

    async def _beside(
        self, receiver: Receiver, channel: Channel, path: str, body: dict[str, Any], work: Callable[[], None]
    ) -> None:
        """Work in a thread while a request is answered that needs the same from the other side. Raises the first
        failure of the two, which ends the other."""
        failures = list[ApolloError]()

        async def post() -> None:
            try:
                _check(receiver, await receiver.post(path, body, self._timeout_s))
            except SendFailed as failed:
                failures.append(failed)
                channel.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post)
            try:
                await anyio.to_thread.run_sync(work)
            except ApolloError as failed:
                failures.append(failed)
                tasks.cancel_scope.cancel()  # its workers wait for what does not come
            except BaseException:
                channel.end()
                raise
        if failures:
            raise _of(receiver, failures[0])

    def _announced(self) -> list[tuple[str, str, list[int]]]:
        stored = (self._weights.tensors[name] for name in self._weights.changing)
        return [(one.name, one.dtype, list(one.shape)) for one in stored]

    def _broadcast(self, channel: Channel) -> None:
        for name in self._weights.changing:
            channel.broadcast(self._weights.tensor(name))


class _Vllm:
    """vLLM 0.32 or newer, started with VLLM_SERVER_DEV_MODE=1 and `--weight-transfer-config '{"backend": "nccl"}'`."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def workers(self) -> int:
        told = await self.receiver.told("/get_world_size")
        return _count(self.receiver, told.get("world_size", 1), "world_size")

    def join(self, place: dict[str, Any], size: int) -> tuple[str, dict[str, Any]]:
        info = {**place, "rank_offset": 1, "world_size": size, "packed": False}
        return "/init_weight_transfer_engine", {"init_info": info}

    async def begin(self) -> None:
        await self.receiver.post("/pause?mode=keep", None, CONTROL_S)
        await self.receiver.post("/start_weight_update", None, CONTROL_S)

    def update(self, announced: list[tuple[str, str, list[int]]], version: int) -> tuple[str, dict[str, Any]]:
        names, dtypes, shapes = zip(*announced, strict=True)
        return "/update_weights", {"update_info": {"names": names, "dtype_names": dtypes, "shapes": shapes}}

    async def end(self, version: int, timeout_s: float) -> None:
        await self.receiver.post("/finish_weight_update", {"weight_version": str(version)}, timeout_s)
        await self.receiver.forget()


class _Sglang:
    """SGLang 0.5. The group's name is `GROUP`."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def workers(self) -> int:
        return _count(self.receiver, (await self._facts()).get("tp_size", 1), "tp_size")

    def join(self, place: dict[str, Any], size: int) -> tuple[str, dict[str, Any]]:
        info = {"rank_offset": 1, "world_size": size, "group_name": GROUP, "backend": "nccl"}
        return "/init_weights_update_group", {**place, **info}

    async def begin(self) -> None:
        self._begins = _numbers(str((await self._facts()).get("version", ""))) >= BEGINS
        await self.receiver.post("/pause_generation", {"mode": "retract"}, CONTROL_S)
        if self._begins:
            _check(self.receiver, await self.receiver.post("/begin_weight_update", {}, CONTROL_S))

    def update(self, announced: list[tuple[str, str, list[int]]], version: int) -> tuple[str, dict[str, Any]]:
        names, dtypes, shapes = zip(*announced, strict=True)
        return "/update_weights_from_distributed", {
            "names": names, "dtypes": dtypes, "shapes": shapes, "group_name": GROUP, "flush_cache": False,
            "abort_all_requests": False, "weight_version": str(version),
        }  # fmt: skip

    async def end(self, version: int, timeout_s: float) -> None:
        await self.receiver.post("/flush_cache", None, CONTROL_S)
        if self._begins:
            _check(self.receiver, await self.receiver.post("/end_weight_update", {}, timeout_s))
        body = {"new_version": str(version), "abort_all_requests": False}
        await self.receiver.post("/update_weight_version", body, CONTROL_S)

    async def _facts(self) -> dict[str, Any]:
        return await self.receiver.told("/server_info") or await self.receiver.told("/get_server_info")


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version such as "0.5.23.post1"; empty if it has none."""
    parts = version.split(".")[:3]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _of(receiver: Receiver, failure: ApolloError) -> SendFailed:
    """The failure of a way to a receiver."""
    return failure if isinstance(failure, SendFailed) else SendFailed(f"{receiver.url}: {failure}", failure.hint)


def _count(receiver: Receiver, given: Any, what: str) -> int:
    """A number of workers that an engine told."""
    if type(given) is not int or not 0 < given <= WORKERS_MAX:
        raise SendFailed(f"{receiver.url} says that its {what} is {str(given)[:40]}", "is it that engine?")
    return given


def _check(receiver: Receiver, told: dict[str, Any]) -> None:
    """Raise SendFailed for SGLang's answer that something failed."""
    if told.get("success") is False:
        raise SendFailed(f"{receiver.url}: {str(told.get('message', 'it refused'))[:300]}", "see its log")
