"""From a log in which no phrase speaks to an answer that is held: the served model is asked over real HTTP, if it was
right about the cases that come with apollod."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream
from support.agent_logs import claude_record
from support.llm_server import LlmServer, Request, send, serving

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import SourceFiles, Terms
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.fold import fold
from apollod.core.rules.followups import FollowUps
from apollod.core.state import State
from apollod.curation.moments import Rules
from apollod.curation.signals.follow_up_question import shipped_cases, shipped_digest
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor, scoring_effects
from apollod.supervisor.loop import Loop
from apollod.supervisor.status_view import status_view
from apollod.wire.status import Journal as JournalStatus


@pytest.fixture(autouse=True)
def without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring_effects, "SHARE", 1.0)


SAID_NO = "That is the port of the staging machine."
LOG = (
    ("user", "Which port does the service use?"), ("assistant", "It listens on 7341."), ("user", SAID_NO),
    ("assistant", "In production it listens on 8080."), ("user", "Good. Then write it down."),
    ("assistant", "It stands in the README now."), ("user", "ok"),
)  # fmt: skip
REJECTING = {case.reply for case in shipped_cases() if case.rejects} | {SAID_NO}

Odds = Callable[[str], float]
"""Of a reply."""


def right(reply: str) -> float:
    return 3.0 if reply in REJECTING else -3.0


def always_yes(reply: str) -> float:
    return 5.0


def at_random(reply: str) -> float:
    return random.Random(reply).gauss(0, 2)


def saying(odds: Odds) -> Callable[[LlmServer, SocketStream, Request], Any]:
    """A model of which one token is asked, with the likeliest ones."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        body = request.body
        assert body["max_tokens"] == 1 and body["top_logprobs"] == 20 and body["logprobs"] is True
        told = body["messages"][-1]["content"]
        reply = told.split("the person's reply\n", 1)[1].rsplit("\n---", 1)[0]
        found = odds(reply)
        top = [("Yes", -0.5 + min(found, 0.0)), ("No", -0.5 - max(found, 0.0)), ("The", -20.0)]
        likely = [{"token": token, "logprob": logprob} for token, logprob in top]
        place = {**likely[0], "top_logprobs": likely}
        message = {"role": "assistant", "content": "Yes"}
        choice = {"index": 0, "finish_reason": "length", "message": message, "logprobs": {"content": [place]}}
        await send(stream, json.dumps({"choices": [choice]}).encode(), X_Apollod_Weights_Version="3")

    return behave


class Outside:
    """An engine that is up, and of all effects only the question about follow-ups; `asks` false: not even that."""

    def __init__(self, executor: Executor, asks: bool) -> None:
        self.exit, self._executor, self._asks = executor.exit, executor, asks

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        if isinstance(effect, fx.SpawnEngine):
            up = ev.EngineReady(7, "http://e", "m", "memfd", 1, 1, 0, 0, 0, 9, 0.1, {})
            return [inp.EngineStarted(7, "/m"), up]
        return await self._executor.run(effect) if self._asks and isinstance(effect, fx.ScoreFollowUp) else ()


class Lives:
    """One journal and one log; each life ends as by a kill."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.journal = root, root / "s.jsonl", root / "journal.db"
        (root / "quarantine").mkdir()
        records = [claude_record(f"u{n}", f"u{n - 1}" if n else "", *said) for n, said in enumerate(LOG)]
        self.log.write_bytes(b"".join(records))

    async def life(self, odds: Odds, until: Callable[[State], object], asks: bool = True) -> tuple[int, FollowUps]:
        """Reads what is new in the log. How often the model was asked, and what `status` says in the end."""
        journal, state = await Journal.open(self.journal), State()
        for item, _ in journal_reader.recorded(self.journal):
            fold(state, item)
        async with serving() as server, anyio.create_task_group() as tasks:
            server.otherwise = saying(odds)
            environ = {"APOLLOD_MODEL__PATH": "/m", "APOLLOD_ENGINE__PORT": str(server.port)}
            config = load_config(None, environ=environ)
            loop = Loop(state, journal)
            executor = Executor(config, journal, cast(Any, None), loop.post, loop.submit, tasks)
            tasks.start_soon(loop.run, cast(Any, Outside(executor, asks)))
            started = inp.Started(1, "test", config.settings(), str(self.root), follow_up_question=shipped_digest())
            await loop.submit(started)
            files = SourceFiles(Quarantine(self.root / "quarantine"), Terms(Rules(models=("*",))), clock=lambda: 1e12)
            files.found([str(self.log)])
            while (batch := files.read_batch(str(self.log), state.intake.sources)) is not None:
                await loop.submit(inp.LinesRead(msgspec.structs.replace(batch, learn="unrejected"), frozenset()))
            with anyio.fail_after(120):
                while not until(loop.state):
                    await loop.changed()
            shown = status_view(loop.state, 0, JournalStatus(seq=0, bytes=0, head_hash="", path="")).follow_ups
            asked = len(server.requests)
            assert server.most_active <= 1, "one request at a time"
            tasks.cancel_scope.cancel()
        await journal.close()
        return asked, shown

    def of(self, kind: type[ev.Event]) -> list[Any]:
        events = (item.event for item, _ in journal_reader.recorded(self.journal))
        return [event for event in events if isinstance(event, kind)]


def settled(state: State) -> bool:
    return state.followups.measured is not None and not state.followups.waiting


def test_a_model_that_is_right_about_the_cases_finds_what_no_phrase_says(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    asked, shown = anyio.run(lives.life, right, settled)
    assert asked == len(shipped_cases()) + 3
    (flagged,) = lives.of(ev.SignalFlagged)
    assert (flagged.cue, flagged.quote, flagged.strength) == ("rejected-by-score", SAID_NO, 0.45)
    (held,) = lives.of(ev.ExampleHeld)
    assert (held.example, held.by) == (flagged.example, "evidence") and SAID_NO in held.reason
    (example,) = [e for e in lives.of(ev.ExampleAccepted) if e.example == held.example]
    assert b"It listens on 7341." in bytes(example.record)
    assert [(e.rejected, e.weights_version) for e in lives.of(ev.FollowUpScored)].count((True, 3)) == 1
    assert (shown.score, shown.used, shown.reason, shown.right, shown.cases) == ("auto", True, "", 48, 48)
    asked, _ = anyio.run(lives.life, right, settled)
    assert asked == 0, "all of it is known"


@pytest.mark.parametrize("odds", [always_yes, at_random])
def test_one_that_is_not_is_asked_about_the_cases_alone(tmp_path: Path, odds: Odds) -> None:
    lives = Lives(tmp_path)
    asked, shown = anyio.run(lives.life, odds, settled)
    assert asked == len(shipped_cases()) and not lives.of(ev.SignalFlagged) and not lives.of(ev.ExampleHeld)
    assert not shown.used and shown.reason.startswith(f"right in {shown.right} of 48 cases")


def test_what_a_kill_left_open_is_asked_once_more(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    anyio.run(lives.life, right, lambda state: state.followups.open == "", False)
    asked, _ = anyio.run(lives.life, right, settled)
    assert asked == len(shipped_cases()) + 3
    assert [e.attempt for e in lives.of(ev.FollowUpRequested)] == [1, 2, 1, 1, 1]
    assert len(lives.of(ev.SignalFlagged)) == 1
