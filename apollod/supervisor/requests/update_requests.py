"""Requests by which outside trainers update the weights. One update at a time; each request is answered when what it
asks for is done and recorded."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast, get_args

import anyio
import anyio.to_thread
import msgspec

from apollod.adapters import update_files
from apollod.adapters.update_files import Manifest, Received
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import LOOK_DUE, Activity, blocked
from apollod.core.facts.intake.repeats import content_id
from apollod.core.facts.updates import Session
from apollod.core.rules import updates
from apollod.errors import ApolloError
from apollod.explain import explain
from apollod.supervisor.child_commands import has_gpu
from apollod.supervisor.receiving import Receiving
from apollod.supervisor.requests.asked import Daemon, reply
from apollod.supervisor.requests.training_requests import announced, checkpoint
from apollod.wire import messages as msg
from apollod.wire.receiver_messages import Announced, Backend, Join
from apollod.wire.updates import NAME, UpdateForm, UpdateRecord, update_json

LOOK_S = 60.0  # longest wait for a look at the quality; most clients wait for five minutes
NO_UPDATE = msg.Failure("no update of the weights is open", "begin one first")


async def open_update(daemon: Daemon, request: msg.UpdateOpenRequest) -> msg.Answer:
    """Begin an update; answered once no step runs."""
    loop, state = daemon.loop, daemon.loop.state
    if (held := state.updates.session) is not None:
        return _held(held)
    with anyio.move_on_after(LOOK_S):  # weights stand still while the probes of quality are asked
        while LOOK_DUE.reason(state) == blocked(Activity.LEASE, state) != "":
            await loop.changed()
    recorded = await loop.submit(inp.UpdateOpening(request.dialect, request.by))
    opened = next((one.event for one in recorded if isinstance(one.event, ev.UpdateOpened)), None)
    if opened is None:
        held = state.updates.session
        return _held(held) if held else msg.Failure(
            f"the weights cannot be updated now: {blocked(Activity.LEASE, state)}",
            "see `apollod ctl status`, then try again", retryable=True,
        )  # fmt: skip
    _receiving(daemon).begin(opened.update)
    while _is_open(daemon, opened.update) and state.training.running is not None:
        await loop.changed()
    return reply(update=opened.update, version=state.training.version, fingerprint=state.training.fingerprint)


def _held(session: Session) -> msg.Failure:
    return msg.Failure(
        f"{session.opened.by} updates the weights already (update {session.number})",
        "wait for its end, or end it with `apollod ctl lease revoke`", retryable=True,
    )  # fmt: skip


def _is_open(daemon: Daemon, update: int) -> bool:
    session = daemon.loop.state.updates.session
    return session is not None and session.number == update


async def receive_directory(daemon: Daemon, request: msg.UpdateDirectoryRequest) -> msg.Answer:
    """Receive the tensors of a directory."""
    directories = daemon.config.control.directories
    return await _received(
        daemon,
        "directory",
        lambda manifest: anyio.to_thread.run_sync(
            partial(_all, request.path, request.load_format, directories, _place(daemon), manifest)
        ),
    )


async def join(daemon: Daemon, request: msg.UpdateJoinRequest) -> msg.Answer:
    """Join a group of an outside trainer."""
    if request.backend == "tensor":
        return await _stand_by(daemon, request.group)
    backend = request.backend or ("nccl" if has_gpu() else "gloo")
    if backend not in get_args(Backend) or (backend == "nccl" and not has_gpu()):
        why = ": it needs a GPU, and this machine has none" if backend == "nccl" else ""
        return msg.Failure(
            f"backend {backend!r} is not served here{why}", 'use "gloo"; weights go through host memory', code=2
        )
    control = daemon.config.control
    wanted = Join(
        request.address, request.port, request.rank, request.world_size, request.group,
        "nested" if request.nested else "plain", control.receive_s, cast(Backend, backend), request.unique_id,
        tuple(control.addresses),
    )  # fmt: skip
    try:
        seconds = await _receiving(daemon).join(request.group, wanted)
    except ApolloError as error:
        return msg.Failure(str(error), error.hint, code=2)
    return reply(group=request.group, seconds=round(seconds, 6))


async def _stand_by(daemon: Daemon, group: str) -> msg.Answer:
    try:
        await _receiving(daemon).stand_by(group)
    except ApolloError as error:
        return msg.Failure(str(error), error.hint, code=2)
    return reply(group=group, seconds=0.0)


async def leave(daemon: Daemon, request: msg.UpdateLeaveRequest) -> msg.Answer:
    """Leave a group."""
    if not _receiving(daemon).enter():
        return msg.Failure("tensors are being received from a group", "wait for the answer")
    try:
        left = await _receiving(daemon).leave_group(request.group)
    finally:
        _receiving(daemon).leave()
    return reply(left=left) if left else msg.Failure(f"no group {request.group!r} was joined", "", missing=True)


async def receive(daemon: Daemon, request: msg.UpdateReceiveRequest) -> msg.Answer:
    """Receive tensors from a group, or by their handles."""
    lengths = {len(request.names), len(request.dtypes), len(request.shapes)}
    announced = [
        Announced(name, dtype, tuple(shape))
        for name, dtype, shape in zip(request.names, request.dtypes, request.shapes, strict=False)
    ]

    async def from_group(manifest: Manifest) -> list[Received]:
        if len(lengths) != 1:
            raise ApolloError(
                f"{len(request.names)} names, {len(request.dtypes)} dtypes and {len(request.shapes)} shapes came",
                "send one of each for every tensor",
            )
        if request.handles:
            return await _receiving(daemon).take(
                request.group, announced, request.handles, daemon.config.control, manifest
            )
        return await _receiving(daemon).receive(
            request.group, announced, request.layout, request.packed_bytes, manifest
        )

    way = "tensor" if request.handles else _receiving(daemon).backend(request.group)
    return await _received(daemon, way, from_group)


def _all(path: str, load_format: str, allowed: Sequence[str], place: Path, manifest: Manifest) -> list[Received]:
    """Every file, or none. Blocking."""
    taken = list[Received]()
    try:
        taken.extend(update_files.take_directory(path, load_format, allowed, place, manifest))
    except BaseException:
        update_files.remove(place, [one.file for one in taken])
        raise
    return taken


def _receiving(daemon: Daemon) -> Receiving:
    assert daemon.received is not None, "a daemon has it from its start"
    return daemon.received


def _place(daemon: Daemon) -> Path:
    return daemon.config.state_dir / NAME


async def _received(daemon: Daemon, way: str, come: Callable[[Manifest], Awaitable[list[Received]]]) -> msg.Answer:
    """Have tensors received and recorded; where that fails, the update ends without a change."""
    loop = daemon.loop
    session, receiving = loop.state.updates.session, _receiving(daemon)
    if session is None or not session.receiving:
        return NO_UPDATE
    update = session.number
    if not receiving.enter():
        return msg.Failure("tensors of this update are being received already", "wait for the answer")
    try:
        found = await come(await receiving.manifest(Path(loop.state.daemon.model_path)))
        receiving.add(update, found)
        for one in found:
            await loop.submit(
                inp.UpdateReceived(update, way, one.file, one.names, one.tensors, one.bytes, round(one.seconds, 6))
            )
            if not _is_open(daemon, update):
                return msg.Failure("the update ended while its tensors were received", "begin it again")
    except (ApolloError, OSError) as error:
        return await _failed(daemon, update, explain(error))
    finally:
        receiving.leave()
    return reply(
        update=update, tensors=sum(one.tensors for one in found), bytes=sum(one.bytes for one in found),
        seconds=sum(one.seconds for one in found),
    )  # fmt: skip


async def _failed(daemon: Daemon, update: int, error: ApolloError) -> msg.Failure:
    """The failure, once the update has ended without a change."""
    await daemon.loop.submit(inp.UpdateEnding(update, error.line()))
    return msg.Failure(str(error), error.hint or "nothing was written; begin the update again", code=2)


async def commit(daemon: Daemon, request: msg.UpdateCommitRequest) -> msg.Answer:
    """Write what was received; answered once it is served."""
    loop, state = daemon.loop, daemon.loop.state
    session = state.updates.session
    if session is None or not session.receiving:
        return NO_UPDATE
    update = session.number
    try:
        await _check_whole(daemon, session, request.whole)
    except ApolloError as error:
        return await _failed(daemon, update, error)
    form = UpdateForm(
        update, session.opened.dialect, session.opened.by, request.label, list(session.files), session.tensors,
        session.bytes, moments=daemon.config.control.moments == "keep",
    )  # fmt: skip
    record = update_json(UpdateRecord(form))
    await loop.submit(inp.UpdateCommitting(update, inp.Line(update, content_id(record), record), request.label))
    while _is_open(daemon, update):
        await loop.changed()
    done = loop.last(ev.UpdateCommitted)
    if done is None or done.update != update:
        undone = loop.last(ev.UpdateUndone)
        why = undone.reason if undone is not None and undone.update == update else "it ended"
        return msg.Failure(why, "the weights are as they were; begin the update again", code=2)
    await announced(daemon)
    if done.durable == "checkpoint" and isinstance(
        failed := await checkpoint(daemon, msg.CheckpointRequest()), msg.Failure
    ):
        return failed
    return reply(
        update=update, version=done.step, fingerprint=done.fingerprint, tensors=done.tensors, bytes=done.bytes,
        seconds=done.seconds, label=done.label,
    )  # fmt: skip


async def _check_whole(daemon: Daemon, session: Session, whole: bool) -> None:
    """Raise ApolloError for an update of nothing, or, if all of the model is expected, of a part."""
    if not session.received:
        raise ApolloError("the update has no tensors", "send them before it is committed")
    if not whole:
        return
    manifest = await _receiving(daemon).manifest(Path(daemon.loop.state.daemon.model_path))
    lacking = manifest.lacking(_receiving(daemon).targets(session.number))
    if lacking and session.names != daemon.loop.state.updates.names:
        raise ApolloError(
            f"{len(lacking)} tensors of the model did not come, the first is {lacking[0]}",
            "send all of them before generation goes on, or use begin_weight_update and end_weight_update",
        )


async def undo(daemon: Daemon, request: msg.UpdateUndoRequest) -> msg.Answer:
    """End the update without a change."""
    session = daemon.loop.state.updates.session
    if session is None:
        return reply(undone=False)
    reason = f"{request.reason} ({request.by})" if request.by else request.reason
    number = session.number
    await daemon.loop.submit(inp.UpdateEnding(number, reason))
    await daemon.loop.submit(inp.Advance())  # its example, if it has one, is withdrawn first
    if _is_open(daemon, number):
        return msg.Failure("the update is being written", "`apollod ctl rollback` takes it back afterwards")
    return reply(undone=True, update=number)


async def lease(daemon: Daemon, request: msg.LeaseRequest) -> msg.Answer:
    """Tell of the lease; answered at once."""
    state = daemon.loop.state
    told = updates.status(state, time.time_ns())
    return reply(
        **msgspec.to_builtins(told), version=state.training.version, fingerprint=state.training.fingerprint,
        labelled=state.updates.labelled, groups=daemon.received.groups() if daemon.received else [],
    )  # fmt: skip
