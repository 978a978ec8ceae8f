"""A supervisor of updates of the weights: what is asked is recorded and answered by the rules of
`wire.control_messages`, without tensors. And an engine that records what is asked of it."""

import asyncio
import threading
from typing import Any

from apollod.wire import control_messages as msg

NAMES = ["model.embed_tokens.weight", "model.norm.weight"]
"""all tensors of the model"""


class UpdatingSupervisor:
    """The answerer of a `Host`. `fails`: the next request of a type is refused. `holds`: requests of a type wait, for
    10 s at most."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.version = 3
        self.label, self.labelled = "", 0
        self.open: msg.UpdateOpenRequest | None = None
        self.received: list[str] = []
        self.groups: set[str] = set()
        self.fails: dict[type, msg.Failure] = {}
        self.holds: dict[type, threading.Event] = {}
        self.in_doubt = ""

    def __call__(self, request: Any) -> msg.Answer:
        self.asked.append(request)
        if (held := self.holds.get(type(request))) is not None:
            held.wait(10)
        if (failure := self.fails.pop(type(request), None)) is not None:
            if isinstance(request, msg.UpdateReceiveRequest | msg.UpdateDirectoryRequest | msg.UpdateCommitRequest):
                self._end()
            return failure
        match request:
            case msg.UpdateOpenRequest():
                if self.open is not None:
                    return msg.Failure("an update is under way", "wait for its end", 1)
                self.open = request
                return msg.Reply({"update": 1, "version": self.version, "fingerprint": "f"})
            case msg.UpdateJoinRequest(group=group):
                self.groups.add(group)
            case msg.UpdateLeaveRequest(group=group):
                if group not in self.groups:
                    return msg.Failure(f"no group {group}", "join it before", missing=True)
                self.groups.remove(group)
            case msg.UpdateReceiveRequest(group=group, names=names):
                if self.open is None or group not in self.groups:
                    self._end()
                    return msg.Failure("nothing can be received", "join a group and begin an update")
                self.received += names
            case msg.UpdateDirectoryRequest():
                self.received += NAMES
            case msg.UpdateCommitRequest(label=label, whole=whole):
                if self.open is None:
                    return msg.Failure("no update is open", "begin one")
                received = self.received
                self._end()
                if whole and set(received) != set(NAMES):
                    return msg.Failure("1 of 2 tensors were received", "send all, or end the update explicitly")
                self.version += 1
                self.label, self.labelled = label, self.version
                return msg.Reply({"version": self.version, "fingerprint": "g", "tensors": len(received)})
            case msg.UpdateUndoRequest():
                was = self.open is not None
                self._end()
                return msg.Reply({"undone": was})
            case msg.LeaseRequest():
                if self.in_doubt:
                    return msg.Failure(self.in_doubt, "wait for the recovery", 3)
                return msg.Reply({
                    "holder": self.open and self.open.by, "groups": [], "label": self.label,
                    "labelled": self.labelled, "version": self.version,
                })  # fmt: skip
        return msg.Reply({})

    def changes(self) -> list[Any]:
        """What was asked, without questions."""
        return [each for each in self.asked if not isinstance(each, msg.LeaseRequest)]

    def kinds(self) -> list[str]:
        """The same as words: open, join, receive, directory, commit, undo, leave."""
        return [type(each).__name__.removeprefix("Update").removesuffix("Request").lower() for each in self.changes()]

    def _end(self) -> None:
        self.open, self.received = None, []


class RecordingEngine:
    """What vLLM's EngineClient is asked for. `busy`: requests use cached prefixes."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.busy = False
        self.broken = False
        self.output_processor = self
        self.request_states: dict[str, Any] = {"a": 1}
        self.parent_requests: dict[str, Any] = {}

    def generate(self, *arguments: Any) -> Any:
        raise AssertionError("the stand-in of vLLM's route does not ask its engine")

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        self.calls.append(("pause", mode, clear_cache))
        if mode == "wait":
            raise ValueError("'wait' mode can't be used in inproc-engine mode")
        if self.broken:
            raise RuntimeError("engine core died")

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    async def collective_rpc(self, method: str) -> list[int]:
        await asyncio.sleep(0)
        return [0]

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        self.calls.append("force" if reset_running_requests else "reset")
        return reset_running_requests or not self.busy

    async def abort(self, request_id: Any, internal: bool = False) -> None:
        self.calls.append(("abort", list(request_id), internal))
