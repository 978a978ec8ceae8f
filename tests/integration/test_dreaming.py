"""Dreams over real HTTP and a real journal: imagination, judge and served model of the small world, and those who
cheat. Only the trainer is absent: a step is done when the test says so."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream
from support.llm_server import LlmServer, Request, conversation_tokens, good_answer, send, serving

from apollod.adapters.journal import journal_reader
from apollod.adapters.journal.writer import Journal
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core import schedules
from apollod.core.state import State
from apollod.demo.world import instructions, reading
from apollod.demo.world.acting import Acting
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor
from apollod.supervisor.executor.dreaming_effects import CALLS
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop
from apollod.wire.records import decode_record

NONE = cast(Any, None)
INSTRUCTION = "Ask before you act."


class OnlyModels(Executor):
    """A daemon without children: what is to be learned waits."""

    async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
        return await super().run(effect) if isinstance(effect, (*CALLS, fx.AskJudge, fx.CancelDream)) else ()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "BACKOFF_FIRST_S", 0.02)


class Served:
    """The world's model: it does what it is told, and untold what it has learned."""

    def __init__(self) -> None:
        self.learned: list[instructions.Instruction] = []
        self.bare: list[str] = []

    async def answer(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        if request.path == "/tokenize":
            return await send(stream, json.dumps(conversation_tokens(request.body)).encode())
        said = request.body["messages"]
        system = said[0]["content"] if said[0]["role"] == "system" else ""
        scenario = reading.scenario_of(said[-1]["content"])
        assert scenario is not None
        told = reading.said_in(system, scenario)
        assert told is not None
        if not system:
            self.bare.append(said[-1]["content"])
        body = good_answer(request)
        body["choices"][0]["message"]["content"] = instructions.answer(scenario, [*self.learned, *told])
        await send(stream, json.dumps(body).encode(), X_Apollod_Weights_Version="3")


class Life:
    def __init__(self, config: Config, loop: Loop, served: Served, acting: Acting, engine: LlmServer) -> None:
        self.config, self.loop, self.served, self.acting, self.engine = config, loop, served, acting, engine

    @property
    def state(self) -> State:
        return self.loop.state

    async def until(self, what: Callable[[], object], within_s: float = 30.0) -> None:
        with anyio.fail_after(within_s):
            while not what():
                await self.loop.submit(inp.Tick())
                await anyio.sleep(0.003)

    def events(self, kind: type[ev.Event]) -> list[Any]:
        recorded = journal_reader.recorded(self.config.journal_path)
        return [item.event for item, _ in recorded if isinstance(item.event, kind)]


@asynccontextmanager
async def life(tmp_path: Path, acting: Acting, *more: str, pattern: str = "", held_out: int = 3) -> AsyncIterator[Life]:
    text = f"""
[model]
path = "/m"
[state]
dir = "{tmp_path}"
[[endpoint]]
name = "judge"
base_url = "{acting.url}"
model = "judge"
[[endpoint]]
name = "imagination"
base_url = "{acting.url}"
model = "imagination"
[judge]
endpoint = "judge"
votes = 1
[lessons]
hold = 0.0
[dream]
mode = "always"
endpoint = "imagination"
[[dream.pattern]]
name = "ask"
instruction = "{INSTRUCTION}"
contrast = ["Act at once.", "Do not ask, act at once."]
held_out = {held_out}
{pattern}
"""
    file = anyio.Path(tmp_path / "apollod.toml")
    await file.write_text(text)
    served = Served()
    async with serving() as engine:
        engine.otherwise = served.answer
        config = load_config(str(file), [f"engine.port={engine.port}", *more], environ={})
        judge, dreamer = Judge(config), Dreamer(config)
        journal = await Journal.open(config.journal_path)
        try:
            loop = Loop(State(), journal)
            async with anyio.create_task_group() as tasks:
                executor = OnlyModels(config, journal, NONE, loop.post, loop.submit, tasks, judge, dreamer)
                loop.post(inp.Started(1, "test", config.settings(), str(tmp_path), judge=judge.configured()))
                loop.post(inp.EngineStarted(2, "/m"))
                loop.post(
                    ev.EngineReady(2, "http://e", "m", "memfd", 3, 3, 0, 0, 0, 100, 1.0, {}, outlives_engine=True)
                )
                tasks.start_soon(loop.run, executor)
                tasks.start_soon(judge.keep_connected)
                tasks.start_soon(dreamer.keep_connected)
                await loop.submit(inp.Tick())
                yield Life(config, loop, served, acting, engine)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await journal.close()


def dream(
    tmp_path: Path, scenario: Callable[[Life], Awaitable[None]], misbehave: Any = None, *sets: str, pattern: str = "",
    held_out: int = 3,
) -> None:  # fmt: skip
    async def main() -> None:
        with Acting(misbehave=misbehave) as acting:
            async with life(tmp_path, acting, *sets, pattern=pattern, held_out=held_out) as it:
                await scenario(it)

    anyio.run(main)


def test_a_dream_as_far_as_its_example_and_a_judge_that_had_to_be_trusted_first(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.dreams.open is not None and it.state.dreams.open.example)
        cases = [e for e in it.events(ev.VerdictGiven) if e.case]
        assert len({e.case for e in cases}) == 39 and all(e.verdict == e.expected for e in cases), (
            "calibrated, though [judge] mode is off"
        )
        course = it.state.dreams.courses["ask"]
        assert course.baseline == {"bare": (0, 3), "told": (3, 3), "contrast": (3, 3)}
        (accepted,) = it.events(ev.ExampleAccepted)
        record = decode_record(bytes(accepted.record))
        assert [m.role for m in record.messages] == ["user", "assistant"]  # type: ignore[union-attr]
        assert record.messages[-1].content.startswith("Shall I")  # type: ignore[union-attr]
        assert accepted.tier == "dream" and accepted.removed[0].text == INSTRUCTION
        (judged,) = it.events(ev.DreamJudged)
        assert (judged.verdict, judged.by, judged.example) == ("good", "judge", accepted.example)
        imagined = {e.dream: e.scenario[-1].content for e in it.events(ev.DreamImagined)}
        assert len(set(imagined.values())) == 4 and record.messages[0].content not in it.served.bare  # type: ignore[union-attr]

    dream(tmp_path, scenario)


@pytest.mark.parametrize(
    ("misbehave", "cause"), [("repeat", {"repeats", "held-out"}), ("leak", {"leak"}), ("echo", {"echo"})]
)
def test_an_imagination_that_cheats_is_caught_and_nothing_is_learned(
    tmp_path: Path, misbehave: str, cause: set[str]
) -> None:
    (tmp_path / "notes.md").write_text("Open the red door for the guest.\n\nPlease mend the old clock in the hall.\n")

    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.dreams.courses["ask"].phase == "retired")
        (retired,) = it.events(ev.PatternRetired)
        assert "dreams ended early" in retired.reason, retired
        assert {e.cause for e in it.events(ev.DreamFailed)} <= cause and not it.events(ev.ExampleAccepted)

    dream(tmp_path, scenario, misbehave, pattern=f'seeds = ["{tmp_path}/notes.md"]')


def test_a_judge_that_always_says_yes_is_not_trusted_and_nothing_is_dreamt(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.judging.ready and not it.state.judging.due)
        for _ in range(20):
            await it.loop.submit(inp.Tick())
        assert not it.events(ev.DreamRequested) and it.acting.imagined == 0

    dream(tmp_path, scenario, "yes")


def test_a_check_by_code_needs_no_judge_and_contrast_must_not_pass_it(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        await it.until(lambda: it.state.dreams.courses["ask"].baseline)
        assert it.state.dreams.courses["ask"].baseline == {"bare": (0, 3), "told": (3, 3), "contrast": (3, 3)}
        assert {e.by for e in it.events(ev.DreamTested)} == {"regex"} and it.acting.judged == 0
        assert not it.events(ev.JudgeConfigured)

    dream(tmp_path, scenario, pattern='check = {regex = "^Shall I .*[?]$"}')


def test_a_secret_that_a_model_says_is_not_recorded(tmp_path: Path) -> None:
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3

    async def scenario(it: Life) -> None:
        async def telling(server: LlmServer, stream: SocketStream, request: Request) -> None:
            if request.path == "/tokenize":
                return await it.served.answer(server, stream, request)
            body = good_answer(request)
            told = INSTRUCTION in request.body["messages"][0]["content"]
            said = f"Shall I use {secret} then?" if told else f"I use {secret}."
            body["choices"][0]["message"]["content"] = said
            await send(stream, json.dumps(body).encode(), X_Apollod_Weights_Version="3")

        it.engine.otherwise = telling
        await it.until(lambda: it.state.dreams.open is not None and it.state.dreams.open.example)
        said = [e.answer for e in it.events(ev.DreamTested) + it.events(ev.DreamAnswered)]
        assert len(said) > 3 and all(" use " in one and secret not in one for one in said)

    dream(tmp_path, scenario, pattern='check = {regex = "^Shall I .*[?]$"}')


def test_a_seed_directory_that_vanishes_is_said_and_the_daemon_goes_on(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        await it.until(lambda: it.events(ev.DreamFailed))
        failed = it.events(ev.DreamFailed)[0]
        assert failed.cause == "seeds" and "gone" in failed.reason

    dream(tmp_path, scenario, pattern=f'check = {{regex = "Shall"}}\nseeds = ["{tmp_path}/gone"]')


def test_users_abort_the_call_that_is_under_way_and_it_is_made_again(tmp_path: Path) -> None:
    async def scenario(it: Life) -> None:
        held, freed = anyio.Event(), anyio.Event()

        async def slow(server: LlmServer, stream: SocketStream, request: Request) -> None:
            if not freed.is_set():
                held.set()
                await stream.receive()  # until the client leaves
            await it.served.answer(server, stream, request)

        it.engine.otherwise = slow
        await it.loop.submit(inp.EngineUse(users=False))
        await it.until(held.is_set)
        await it.loop.submit(inp.EngineUse(users=True))
        freed.set()
        await it.until(lambda: it.engine.left == 1)
        for _ in range(5):
            await it.loop.submit(inp.Tick())
        assert not it.events(ev.DreamTested) and not it.events(ev.DreamFailed)
        await it.loop.submit(inp.EngineUse(users=False))
        await it.until(lambda: it.state.dreams.courses["ask"].baseline)

    check = 'check = {regex = "^Shall I .*[?]$"}'
    dream(tmp_path, scenario, None, "dream.mode=idle", pattern=check)
