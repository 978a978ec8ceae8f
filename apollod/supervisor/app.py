"""Composition root: opens all parts, recovers, runs until it is stopped."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import structlog

from apollod import __version__
from apollod.adapters import base_model
from apollod.adapters.ipc.sockets import listen, tasks_beside
from apollod.adapters.journal import blobs, journal_file, journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.adapters.system import clock, service
from apollod.adapters.system.files import remove_of_the_dead
from apollod.adapters.system.processes import end_leftover
from apollod.adapters.system.service import Lock
from apollod.adapters.system.timetable import hours_of, next_night, zone_of
from apollod.core import inputs as inp
from apollod.core.activities import DREAMS_BY_NIGHT
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.curation import redaction
from apollod.curation.probes.probe_item import Probe
from apollod.curation.probes.probe_kinds import contrast_probes
from apollod.curation.signals.follow_up_question import shipped_digest
from apollod.errors import ApolloError, JournalError
from apollod.explain import reason
from apollod.supervisor import captures, sources
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.child_commands import engine_module
from apollod.supervisor.children import Children
from apollod.supervisor.config import Config, exposures
from apollod.supervisor.control import Control
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.dreaming.idle_watch import IdleWatch
from apollod.supervisor.executor import Executor
from apollod.supervisor.executor.context import AnyEnvironment
from apollod.supervisor.executor.dreaming_effects import dreaming
from apollod.supervisor.executor.environment_effects import environments_of, keep_open
from apollod.supervisor.executor.training_effects import remove_others
from apollod.supervisor.journal_watch import Audit, GrowthWatch
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop
from apollod.supervisor.quality import teller
from apollod.supervisor.quality.leak_watch import LeakWatch
from apollod.supervisor.quality.prober import probes_of
from apollod.supervisor.quality.reference_files import WAY_OUT, remove_unused
from apollod.supervisor.receiving import Receiving
from apollod.supervisor.requests.asked import Daemon
from apollod.supervisor.sections import ScheduleSection
from apollod.wire.pipe_messages import SEARCH_ROOM
from apollod.wire.state_snapshot import fold_code, load_state
from apollod.wire.updates import NAME as UPDATES

log = structlog.get_logger()

TICK_S = 0.5
BASE_LOOK_S = 5.0


async def run(config: Config) -> None:
    """Run the daemon. Raises ApolloError if it cannot start."""
    redaction.use(config.redaction.personal)
    if (why_not := sources.refused(config)) is not None:
        raise why_not
    if (why_not := teller.refused(config)) is not None:
        raise why_not
    probes = probes_of(config) if config.quality.is_on else ()
    judge, dreamer, environments = Judge(config, by_daemon=True), Dreamer(config), environments_of(config)
    _make_directories(config)
    lock = Lock(config.state_dir / "apollod.lock")
    for exposure in exposures(config):
        log.warning("exposed", reason=exposure)
    try:
        _check_not_lost(config)
        remove_of_the_dead(config.state_dir, SEARCH_ROOM)
        captures.forget_if_off(config)
        journal = await Journal.open(config.journal_path)
        try:
            await _serve(config, journal, judge, dreamer, probes, environments)
        finally:
            with anyio.CancelScope(shield=True):
                await journal.close()
    finally:
        lock.release()


def _make_directories(config: Config) -> None:
    for directory in (config.state_dir, config.state_dir / "quarantine", config.state_dir / "log", config.inbox_dir):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ApolloError(
                f"{directory} cannot be made: {reason(error)}",
                "check [state] dir and [inbox] path, their owner and disk",
            ) from error


def _check_not_lost(config: Config) -> None:
    """Refuse a new journal beside old checkpoints: it would take the learned weights for the untrained model."""
    old = next((config.state_dir / "checkpoints").glob("step-*"), None)
    if old is not None and (how := journal_file.absence(config.journal_path)):
        raise JournalError(
            f"the journal {config.journal_path} is {how}, but {old} is of an earlier life",
            f"restore the journal from a backup; to begin anew from the weights as they are now, move {old.parent} "
            "away",
        )


async def _serve(
    config: Config, journal: Journal, judge: Judge, dreamer: Dreamer, probes: tuple[Probe, ...],
    environments: Mapping[str, AnyEnvironment],
) -> None:  # fmt: skip
    state, snapshot_seq = await anyio.to_thread.run_sync(_recall, config.journal_path)
    references_problem = await anyio.to_thread.run_sync(_look_over_blobs, config, state)
    _end_leftovers(config, state)
    leaks = watch(config, probes, state)
    loop = Loop(state, journal, snapshot_seq, leaks.said_of if config.quality.is_on else None)
    children = Children(loop.post)
    link = _socket_link(config)
    listener = await listen(config.socket_path)
    try:
        if link != config.socket_path:
            _leave_link(link, config.socket_path)
        async with tasks_beside() as tasks:
            executor = Executor(
                config, journal, children, loop.post, loop.submit, tasks, judge, dreamer, leaks, environments
            )
            if references_problem:
                executor.context.references.complained(state.quality.references)
            audit = Audit(config.journal_path, snapshot_seq, state.seq)
            growth = GrowthWatch(config.journal_path, config.state_dir / "log")
            bootstrapper = Bootstrapper(config, loop)
            received = Receiving(config.state_dir / "log" / "receiver.log", config.state_dir / UPDATES)
            parts = Daemon(config, loop, journal, children, audit, growth, bootstrapper, judge, dreamer, received)
            control = Control(parts)
            started = inp.Started(
                os.getpid(), __version__, config.settings(), str(config.state_dir), _base_problem(state),
                journal_file.free_bytes(config.journal_path), judge.configured(), references_problem,
                shipped_digest(),
            )  # fmt: skip
            loop.post(started)
            tasks.start_soon(listener.serve, control.handle)
            tasks.start_soon(_tick, loop, config.schedule)
            tasks.start_soon(audit.run)
            tasks.start_soon(growth.run)
            tasks.start_soon(captures.forget_in_time, config)
            tasks.start_soon(_signals, loop)
            tasks.start_soon(_watch_base, loop)
            tasks.start_soon(judge.keep_connected)
            tasks.start_soon(dreamer.keep_connected)
            tasks.start_soon(keep_open, environments)
            tasks.start_soon(idle_watch(config, loop, executor).run)
            sources.read_sources(config, loop, tasks)
            tasks.start_soon(bootstrapper.run)
            service.notify(f"READY=1\nSTATUS=serving on {config.socket_path}\nMAINPID={os.getpid()}")
            try:
                await loop.run(executor)
            finally:
                service.notify("STOPPING=1")
    finally:
        for path in {link, config.socket_path}:
            with suppress(OSError):  # the next life removes it; the reason of this end matters more
                path.unlink()


def watch(config: Config, probes: tuple[Probe, ...], state: State) -> LeakWatch:
    """A leak watch for `probes` (of the configuration) and the baseline's contrast cases."""
    of_patterns = contrast_probes(state.quality.contrasts) if config.quality.is_on else ()
    return LeakWatch(config.journal_path, probes + of_patterns)


def _socket_link(config: Config) -> Path:
    """Path, in the state directory, of a link to the socket, which a service manager may have placed elsewhere. Makes
    its directory and removes what an earlier life left. Call with the lock held."""
    path = config.state_dir / "run" / config.socket_path.name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.chmod(0o700)  # below the state directory it is ours in any case
    if path.is_symlink() or (path != config.socket_path and path.is_socket()):
        path.unlink()
    return path


def _leave_link(link: Path, socket: Path) -> None:
    try:
        link.symlink_to(socket)
    except OSError as error:
        log.warning(
            "socket.not_linked",
            path=str(link),
            error=str(error),
            hint=f"`apollod ctl --socket {socket}` works all the same",
        )


def _recall(journal: Path) -> tuple[State, int]:
    """The state folded from the journal, and the event up to which a snapshot replaced reading."""
    snapshot = journal_reader.snapshot(journal, fold_code())
    if snapshot is None:
        state, events = State(), journal_reader.recorded(journal)
    else:
        state, events = load_state(snapshot.state), journal_reader.recorded(journal, snapshot.seq, snapshot.hash)
    for item, _ in events:
        fold(state, item)
    return state, snapshot.seq if snapshot else 0


def _end_leftovers(config: Config, state: State) -> None:
    """End children of a daemon that died while it was starting them; others die with it."""
    engine, trainer = state.children.engine.pid, state.children.trainer.pid
    for pid, module in ((engine, engine_module(config)), (trainer, "apollod.trainer")):
        if pid and end_leftover(pid, module):
            log.warning("child.leftover_ended", pid=pid, module=module)


def _look_over_blobs(config: Config, state: State) -> str:
    """Problem of the references of the baseline in force, with the fix; empty: none. Removes half-written files, and,
    without a problem, references of other baselines. Call with the lock held, before anything is measured."""
    directory, in_force = config.state_dir / blobs.NAME, state.quality.references
    blobs.remove_half_written(directory)
    remove_others(config)
    if in_force and (problem := blobs.problem(directory, in_force)):
        return f"{problem}; {WAY_OUT}" if config.quality.is_on else ""
    remove_unused(directory, in_force)
    return ""


def _base_problem(state: State) -> str:
    return base_model.problem(Path(state.recovery.base.path)) if state.recovery.base else ""


async def _watch_base(loop: Loop) -> None:
    """Watch the files of the untrained weights, which others may remove, and report a loss early."""
    while True:
        await anyio.sleep(BASE_LOOK_S)
        base = loop.state.recovery.base
        if base is not None and (problem := await anyio.to_thread.run_sync(base_model.problem, Path(base.path))):
            await loop.submit(inp.BaseLost(base.path, problem))


def idle_watch(config: Config, loop: Loop, executor: Executor) -> IdleWatch:
    """A watch that looks only while dreams wait for an idle engine, and often during a call for a dream."""

    def wanted() -> bool:
        ready = loop.state.children.engine.phase == "ready"
        by_day = DREAMS_BY_NIGHT.reason(loop.state)
        return ready and config.dream.mode == "idle" and loop.state.dreams.awaits_idle and not by_day

    return IdleWatch(config, loop.post, wanted, closely=lambda: dreaming(executor.context.under_way))


async def _tick(loop: Loop, schedule: ScheduleSection) -> None:
    """Submit ticks, for back-offs, due checkpoints and nights. Also shows the watchdog that the loop takes inputs."""
    while True:
        if (known := _night(schedule)) is not None or loop.state.schedule.planned is not None:
            await loop.submit(known or inp.NightPlanned(0, 0))
        await loop.submit(inp.Tick())
        service.notify("WATCHDOG=1")
        await anyio.sleep(TICK_S)


def _night(schedule: ScheduleSection) -> inp.NightPlanned | None:
    """The present or next hours; None: no such hours are set."""
    if not schedule.nightly:
        return None
    night = next_night(hours_of(schedule.nightly), zone_of(schedule.zone), clock.now_ns())
    return inp.NightPlanned(night.opens_ns, night.closes_ns, schedule.nightly, schedule.zone)


async def _signals(loop: Loop) -> None:
    """Treat the first SIGTERM or SIGINT as a request to stop; restore the default action for the second."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            loop.post(inp.ShutdownRequested(reason=signal.Signals(number).name))
            signal.signal(number, signal.SIG_DFL)
