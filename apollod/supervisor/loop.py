"""The only way to change the state: input -> decide -> append (durable) -> fold -> effects.

Inputs are taken one at a time. While the journal cannot be written the loop holds its decision: nothing is lost,
nothing is acted on, and serving goes on without it. A full disk can be cleared meanwhile; after other failed writes
only a restart helps, at a time that the operator chooses. A request to stop ends the wait and, if it is hopeless, so
does the end of the engine.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from apollod.adapters.journal.writer import Journal
from apollod.adapters.system import clock, service
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.intake.events import rejections
from apollod.core.fold import fold
from apollod.core.inputs import Batch, Taught
from apollod.core.kernel.outcome import Outcome
from apollod.core.rules.intake.accepting import again_id, asked_about
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.curation.lessons.line_lessons import lesson_in
from apollod.errors import JournalError
from apollod.failpoints import failpoint
from apollod.supervisor.executor import Executor
from apollod.supervisor.narrate import narrate
from apollod.wire.state_snapshot import dump_state, fold_code

log = structlog.get_logger()

INPUTS_MAX = 1024  # waiting inputs; a caller that posts with `submit` waits for its own
APPEND_RETRY_S = 1.0
SNAPSHOT_EVENTS = 10_000
"""a start folds at most so many events, or as many as examples wait: writing a snapshot costs as much"""
EventT = TypeVar("EventT", bound=ev.Event)

LeaksOf = Callable[[Sequence[bytes]], list[str]]
"""(canonical records) -> for each, which part of which probe it holds, for people; blocking"""

SNAPSHOT_IDLE_NS = 60 * SECOND_NS


class Loop:
    """Owns the state. `post` never blocks (children's reports); `submit` waits until the input has taken effect."""

    def __init__(self, state: State, journal: Journal, snapshot_seq: int = 0, leaks_of: LeaksOf | None = None) -> None:
        """`leaks_of`: None without a quality guard."""
        self.state = state
        self.journal = journal
        self._leaks_of = leaks_of
        self.journal_error = ""
        self.begun = False
        self._trouble = anyio.Event()
        self._stop_requested = False
        self._snapshot_seq = snapshot_seq
        self._recorded_ns = 0
        self._inputs: deque[tuple[inp.Input, Ticket | None]] = deque()
        self._arrived = anyio.Event()
        self._changed = anyio.Event()
        self._last: dict[type[ev.Event], ev.Event] = {}
        self._room = anyio.Semaphore(INPUTS_MAX)

    def post(self, input_: inp.Input) -> None:
        """Queue an input."""
        self._stop_requested |= isinstance(input_, inp.ShutdownRequested)
        self._inputs.append((input_, None))
        self._arrived.set()

    async def submit(self, input_: inp.Input) -> list[ev.Recorded]:
        """Queue an input, wait until it has taken effect, and return the events recorded for it. If the caller is
        cancelled before it was taken, it is dropped."""
        done = Ticket()
        async with self._room:
            self._inputs.append((input_, done))
            self._arrived.set()
            try:
                return await done.wait()
            except anyio.get_cancelled_exc_class():
                self._inputs = deque(waiting for waiting in self._inputs if waiting[1] is not done)
                raise

    async def changed(self) -> None:
        """Return after the next recorded event."""
        await self._changed.wait()

    def last(self, kind: type[EventT]) -> EventT | None:
        """The newest event of this type in this life; None: none yet."""
        found = self._last.get(kind)
        assert found is None or isinstance(found, kind)
        return found

    async def trouble(self) -> None:
        """Return as soon as the journal cannot be written; `journal_error` has the reason."""
        await self._trouble.wait()

    async def run(self, executor: Executor) -> None:
        """Work until `executor.exit` is set."""
        while not executor.exit.is_set():
            while self._inputs and not executor.exit.is_set():
                input_, done = self._inputs.popleft()
                failpoint("loop.input-taken")
                recorded = await self._process(input_, executor)
                if done is not None:
                    done.settle(recorded)
            if not self._inputs and not executor.exit.is_set():
                self._arrived = anyio.Event()
                await self._arrived.wait()
        self._snapshot(1)

    async def _process(self, input_: inp.Input, executor: Executor) -> list[ev.Recorded]:
        """Process one input, then everything that may begin by itself; return the events of the input."""
        recorded = await self._settle(input_, executor)
        while await self._settle(inp.Advance(), executor):
            pass
        idle = clock.now_ns() - self._recorded_ns >= SNAPSHOT_IDLE_NS
        self._snapshot(1 if idle else max(SNAPSHOT_EVENTS, self.state.intake.pending))
        return recorded

    def _snapshot(self, events: int) -> None:
        """Write a snapshot for the next start if at least `events` events came after the last one."""
        if self.state.seq - self._snapshot_seq >= events:
            self.journal.leave_snapshot(fold_code(), self.state.seq, dump_state(self.state))
            self._snapshot_seq = self.state.seq

    async def _settle(self, input_: inp.Input, executor: Executor) -> list[ev.Recorded]:
        """Decide, record, act; the inputs that an effect returns are settled before the next effect."""
        decision = decide(self.state, await self._with_known(input_), clock.now_ns())
        failpoint("loop.decided")
        recorded = await self._record(decision)
        for effect in decision.effects:
            for result in await executor.run(effect):
                recorded = recorded + await self._settle(result, executor)
        return recorded

    async def _record(self, decision: Outcome) -> list[ev.Recorded]:
        if not decision.events:
            return []
        failpoint("loop.before-append")
        recorded = await self._append(decision.events)
        self._recorded_ns = clock.now_ns()
        failpoint("loop.appended")
        for item in recorded:
            fold(self.state, item)
            narrate(item.event)
            self._last[type(item.event)] = item.event
        failpoint("loop.folded")
        self.begun = True
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        return recorded

    async def _append(self, events: list[ev.Event]) -> list[ev.Recorded]:
        while True:
            try:
                recorded = await self.journal.append(events, clock.now_ns())
            except JournalError as error:
                self._failed(error, len(events))
                await anyio.sleep(APPEND_RETRY_S)
            else:
                if self.journal_error:
                    log.info("journal.written_again", seq=recorded[-1].seq)
                    self.journal_error, self._trouble = "", anyio.Event()
                return recorded

    def _failed(self, error: JournalError, events: int) -> None:
        """Report it, once in the log; raise if a stop was requested, or waiting is useless: only a new process can
        write again, and nothing is served that it would interrupt."""
        if not error.retryable and not self._serving():
            raise JournalError(
                f"{error}; the daemon ends, since only a new start can write to it and no model is served",
                f"{error.hint}, then start the daemon, as its service manager does by itself",
            ) from error
        if not self.journal_error:
            log.error("journal.append_failed", error=error.line())
        self.journal_error = (
            error.line() if error.retryable else f"{error.line()}, then restart the daemon; until then it only serves"
        )
        self._trouble.set()
        if self._stop_requested:
            raise JournalError(
                f"stopped while the journal could not be written: {error}",
                f"{error.hint}; {events} events that nobody was told of are dropped",
            ) from error
        service.notify("WATCHDOG=1")  # the loop is alive; a watchdog restart would end serving

    def _serving(self) -> bool:
        """True if the engine is up, and not reported gone since."""
        gone = any(isinstance(waiting, inp.EngineExited) for waiting, _ in self._inputs)
        return self.state.children.engine.phase == "ready" and not gone

    async def _with_known(self, input_: inp.Input) -> inp.Input:
        """Add present facts of the journal about the input's lines."""
        look_up = LOOKUPS.get(type(input_))
        return input_ if look_up is None else await look_up(self, input_)

    async def _given(self, input_: inp.EditGiven | inp.JudgeAnswered) -> inp.Input:
        return await self._written(msgspec.structs.replace(input_, line=await self._with_lesson(input_.line)))

    async def _written(self, input_: inp.EditGiven | inp.JudgeAnswered | inp.DreamVerdict) -> inp.Input:
        line = input_.line
        known = line is not None and bool(line.example) and bool(await self.journal.known({line.example}))
        return msgspec.structs.replace(input_, known=known, line=await self._with_leak(line))

    async def _prepared(self, lesson: inp.LessonPrepared) -> inp.LessonPrepared:
        return msgspec.structs.replace(lesson, line=await self._with_leak(lesson.line))

    async def _read(self, input_: inp.LinesRead) -> inp.LinesRead:
        lines = [line for line in input_.batch.lines if line.example]
        evidence = [one for line in input_.batch.lines for one in (*line.evidence, *line.unscored)]
        signatures = [line.signature for line in lines if line.signature] if input_.batch.near_duplicate else []
        known_lines = await self.journal.known({line.example for line in lines})
        responses = await self._learned(lines, {key for one in evidence for key in (one.answer, *one.turn)})
        taught = await given_again(self.journal, input_.batch, known_lines, responses)
        settled = known_lines - taught.keys()
        signals = {one.id for one in evidence} | _rejections(input_.batch)
        return msgspec.structs.replace(
            input_,
            batch=await self._with_lessons(await self._with_leaks(input_.batch, settled), settled),
            known=frozenset(known_lines),
            responses=responses,
            taught=taught,
            signatures=await self.journal.like(signatures) if signatures else {},
            flagged=frozenset(await self.journal.flagged(signals)) if signals else frozenset(),
        )

    async def _encoded(self, done: inp.EncodeDone) -> inp.EncodeDone:
        """The results, once files that were computed with them are durable."""
        for one in done.results:
            while one.file:
                try:
                    await self.journal.keep_file(one.file)
                    break
                except JournalError as error:
                    self._failed(error, 1)
                    await anyio.sleep(APPEND_RETRY_S)
        return done

    async def leaks_of(self, records: Sequence[bytes]) -> list[str]:
        """For each of these canonical records, which part of which probe it holds; empty: none, or no guard."""
        if self._leaks_of is None or not records:
            return [""] * len(records)
        return await anyio.to_thread.run_sync(self._leaks_of, records)

    async def _with_leaks(self, batch: inp.Batch, known: Collection[str]) -> inp.Batch:
        """The batch, with the probes held by its new lines."""
        fresh = {number for number, line in enumerate(batch.lines) if line.example and line.example not in known}
        said = iter(await self.leaks_of([batch.lines[number].record for number in sorted(fresh)]))
        lines = [
            msgspec.structs.replace(line, leak=leak) if number in fresh and (leak := next(said)) else line
            for number, line in enumerate(batch.lines)
        ]
        return msgspec.structs.replace(batch, lines=tuple(lines))

    async def _with_leak(self, line: inp.Line | None) -> inp.Line | None:
        if line is None or not line.example:
            return line
        return msgspec.structs.replace(line, leak=(await self.leaks_of([line.record]))[0])

    async def _with_lessons(self, batch: inp.Batch, known: Collection[str]) -> inp.Batch:
        """The batch, with the lessons of its new direct lines."""
        tiers = [line.tier or batch.tier for line in batch.lines]
        if "direct" not in tiers:
            return batch
        lines = [
            await self._with_lesson(line) if tier == "direct" and line.example not in known else line
            for line, tier in zip(batch.lines, tiers, strict=True)
        ]
        return msgspec.structs.replace(batch, lines=tuple(line for line in lines if line is not None))

    async def _with_lesson(self, line: inp.Line | None) -> inp.Line | None:
        settings = self.state.daemon.settings
        if line is None or not line.example or line.lesson is not None or not (settings and settings.lessons.direct):
            return line
        lesson = await anyio.to_thread.run_sync(lesson_in, line.record)
        return msgspec.structs.replace(line, lesson=lesson)

    async def _learned(self, lines: list[inp.Line], told_of: set[str]) -> dict[str, str]:
        """Example by key, for answers of these lines that were learned or rated bad, so that they are not learned, and
        for the answers (keys in `told_of`) that evidence of the lines is about."""
        answers = [one for line in lines for one in line.responses]
        keys = {key for one in answers for key in one.keys}
        parts = {inp.part_key(key, 1): key for key in told_of if key}
        learned = await self.journal.learned_by(keys | told_of | parts.keys())
        long = [key for part, key in parts.items() if part in learned]
        rest = {inp.part_key(key, part) for key in long for part in range(2, inp.PARTS_MAX)}
        learned |= await self.journal.learned_by(rest) if rest else {}
        named = {one.sampled.response for one in answers if one.sampled.response}
        rated = await self.journal.feedback(named) if named else {}
        last = {name: said[-1][1] for name, said in rated.items()}
        bad = {inp.response_key(name): said.example for name, said in last.items() if said.rating == "bad"}
        return learned | bad

    async def _rated(self, rated: inp.Rated) -> inp.Rated:
        """The rating, with earlier ratings of its answer and the examples learned from it."""
        said = (await self.journal.feedback([rated.response])).get(rated.response, [])
        seq, previous = said[-1] if said else (0, None)
        key = inp.response_key(rated.response)
        learned = await self.journal.learned_by([key])
        known = await self.journal.known([rated.line.example]) if rated.line else set()
        line = await self._with_lesson(await self._with_leak(rated.line))
        return msgspec.structs.replace(
            rated, line=line, previous=previous, previous_seq=seq, known=bool(known),
            learned=learned.get(key),
            formers=tuple(one.example for _, one in said),
        )  # fmt: skip


LOOKUPS: Mapping[type[inp.Input], Callable[[Loop, Any], Awaitable[inp.Input]]] = {
    inp.LinesRead: Loop._read,
    inp.EncodeDone: Loop._encoded,
    inp.Rated: Loop._rated,
    inp.EditGiven: Loop._given,
    inp.JudgeAnswered: Loop._given,
    inp.DreamVerdict: Loop._written,
    inp.LessonPrepared: Loop._prepared,
}
"""Input type -> a function that adds present facts of the journal to it."""


def _rejections(batch: inp.Batch) -> set[str]:
    """Possible ids of earlier evidence, from other batches or logs, against answers of this batch."""
    if batch.learn == "all":
        return set()
    return {id_ for line in batch.lines if line.of_log for one in line.responses for id_ in rejections(one.key)}


class Ticket:
    """Set when an input has taken effect; carries its events."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._recorded: list[ev.Recorded] = []

    def settle(self, recorded: list[ev.Recorded]) -> None:
        self._recorded = recorded
        self._done.set()

    async def wait(self) -> list[ev.Recorded]:
        await self._done.wait()
        return self._recorded


async def given_again(
    journal: Journal, batch: Batch, known: Collection[str], learned: Mapping[str, str]
) -> dict[str, Taught]:
    """By id, the examples that lines of a batch repeat and may teach again. `known`: its examples that the journal has;
    `learned`: see `LinesRead.responses`. Raises JournalError."""
    lines = [(line, line.tier or batch.tier) for line in batch.lines]
    times = dict.fromkeys(asked_about(lines, known, learned), 1)
    rest = set(times)
    while rest:
        found = await journal.known({again_id(one, times[one]) for one in rest})
        rest = {one for one in rest if again_id(one, times[one]) in found}
        for one in rest:
            times[one] += 1
    newest = {one: again_id(one, count - 1) if count > 1 else one for one, count in times.items()}
    direct = any(tier == "direct" for _, tier in lines)
    accepted = await journal.accepted_of(newest.values()) if direct and newest else {}
    return {
        one: Taught(last, times[one], accepted[last].tier if last in accepted else "direct")
        for one, last in newest.items()
    }
