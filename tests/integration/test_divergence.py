"""How an engine is asked about an answer with and without what was stripped: over real HTTP, as the daemon does it, and
what is shown of it. What our engine says is in test_engine_share.py."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import llm_server as behave
from support.journals import STORY, A, C, F, write
from support.llm_server import LlmServer, conversation_tokens, serving

from apollod.adapters.journal.journal_reader import query
from apollod.adapters.journal.writer import Journal
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import TOKENS_MAX, Pace, Score, answer_range, score
from apollod.adapters.llm.openai_api import Tokenised
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Removed
from apollod.core.state import State
from apollod.curation.stripping import Contexts, Stripping, contexts, strip
from apollod.errors import ApolloError, LlmNonsense, LlmRefused, LlmUnreachable, ScoreRefused
from apollod.supervisor.config import load_config
from apollod.supervisor.executor import Executor, scoring_effects
from apollod.supervisor.loop import Loop
from apollod.wire.engine_terms import OURS
from apollod.wire.records import record_of_forms


@pytest.fixture(autouse=True)
def without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring_effects, "SHARE", 1.0)


SYSTEM = {"content": "You are a waiter.", "role": "system"}
QUESTION = {"content": "<memory>likes tea</memory>\nWhat to drink?", "role": "user"}
ANSWER = {"content": "Tea of course.", "role": "assistant"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "pour", "parameters": {}}}


def both_of(messages: list[dict[str, Any]], level: str = "all", tools: tuple[dict[str, Any], ...] = ()) -> Contexts:
    kept, left, removed = strip(messages, Stripping(level), tools)  # type: ignore[arg-type]
    found = contexts(record_of_forms(kept, left).canonical, removed)
    assert found is not None
    return found


BOTH = both_of([SYSTEM, QUESTION, ANSWER])


def asked(
    *script: behave.Behaviour, both: Contexts = BOTH, share: float = 1.0, **options: Any
) -> tuple[Score | ApolloError, LlmServer]:
    """The score, or the error, and the server."""

    async def main() -> tuple[Score | ApolloError, LlmServer]:
        async with serving(*script) as server, HttpLlm(Endpoint(server.url, "m", attempts=1)) as llm:
            try:
                return await score(llm, both, Pace(share), **options), server
            except ApolloError as error:
                return error, server

    return anyio.run(main)


# --- what is asked about ----------------------------------------------------------------------------------------------

texts = st.lists(st.sampled_from(["<memory>", "</memory>", "x", "two words", " "]), min_size=1, max_size=6).map("".join)


@given(
    before=st.lists(st.fixed_dictionaries({"content": texts, "role": st.sampled_from(["user", "system"])}), max_size=4),
    after=st.lists(st.fixed_dictionaries({"content": texts, "role": st.just("user")}), max_size=2),
    level=st.sampled_from(["none", "memory", "system", "all"]),
)
def test_what_was_stripped_is_there_again_as_it_was(before: list, after: list, level: str) -> None:
    said = [*before, ANSWER]
    both = both_of([*said, *after], level, (TOOL,))
    assert both.with_context.messages == said and both.with_context.tools == [TOOL]
    assert both.without_context.messages == strip(said, Stripping(level))[0]  # type: ignore[arg-type]
    assert both.without_context.tools == ([] if level == "all" else [TOOL])


def test_the_last_answer_that_is_learned_is_asked_about_and_calls_are_as_a_request_has_them() -> None:
    call = {"function": {"arguments": {"b": 1, "a": "é"}, "name": "pour"}, "type": "function"}
    calling = {"content": "", "role": "assistant", "tool_calls": [call]}
    result = {"content": "poured", "role": "tool"}
    unlearned = {"content": "Bye.", "role": "assistant", "weight": 0}
    record = record_of_forms([QUESTION, calling, result, ANSWER, QUESTION, unlearned]).canonical
    both = contexts(record, (Removed(4, -1, "behind the answer", "memory", "user"),))
    assert both is not None and both.with_context == both.without_context
    assert [message["role"] for message in both.with_context.messages] == ["user", "assistant", "tool", "assistant"]
    (sent,) = both.with_context.messages[1]["tool_calls"]
    assert json.loads(sent["function"]["arguments"]) == {"b": 1, "a": "é"} and sent["id"]
    assert contexts(b'{"text":"no conversation"}', ()) is None


def test_the_tokens_of_the_answer_are_those_behind_the_prompt_without_white_space_at_the_end() -> None:
    def told(*texts: str, longest: int = 100) -> Tokenised:
        return Tokenised(tuple(map(hash, texts)), texts, longest)

    prompt = told("user", "hi", "<end>", "\u010a", "assistant")
    whole = told("user", "hi", "<end>", "\u010a", "assistant", "yes", "<end>", "\u010a", " ")
    assert answer_range(prompt, whole) == (5, 7)
    thought = told("user", "hi", "<end>", "\u010a", "assistant", "<think>", "\u010a")
    assert answer_range(thought, whole) == (5, 7), "how an answer begins is the template's choice"
    with pytest.raises(ScoreRefused, match="otherwise once it is there"):
        answer_range(prompt, told("other", "words", "<end>"))
    with pytest.raises(ScoreRefused, match="nothing of the answer"):
        answer_range(prompt, prompt)
    with pytest.raises(ScoreRefused, match="too long"):
        answer_range(prompt, msgspec.structs.replace(whole, max_model_len=9))
    with pytest.raises(ScoreRefused, match="too long"):
        answer_range(prompt, told(*["x"] * TOKENS_MAX, longest=1 << 20))


# --- how it is asked --------------------------------------------------------------------------------------------------


def mean(messages: list[dict[str, Any]], tokens: int) -> float:
    """Of the server, to which a token's log-probability is minus its number."""
    ids = conversation_tokens({"messages": messages, "add_generation_prompt": False})["tokens"][:-1]
    return -sum(ids[-tokens:]) / tokens


def test_means_over_the_answers_tokens_and_what_is_sent() -> None:
    found, server = asked(priority=1)
    assert isinstance(found, Score)
    assert (found.tokens, found.weights_version, found.alternate) == (4, 14, "")
    assert found.with_context == pytest.approx(mean([SYSTEM, QUESTION, ANSWER], 4)) == found.without_context
    assert [request.path for request in server.requests] == ["/tokenize"] * 4 + ["/v1/completions"] * 2
    assert server.most_active == 1
    first, last = server.requests[4].body, server.requests[5].body
    assert first["prompt_logprobs"] == 0 and first["priority"] == 1 and len(first["prompt"]) > len(last["prompt"])


def test_the_answer_without_the_context_is_kept_if_it_is_wanted() -> None:
    found, server = asked(alternate=True)
    assert isinstance(found, Score) and found.alternate == "text 0"
    chat = server.requests[-1]
    assert chat.path == "/v1/chat/completions" and chat.body["messages"] == BOTH.without_context.messages[:-1]
    assert chat.body["temperature"] == 0.0 and chat.body["max_tokens"] == 256


def test_no_more_than_its_share_of_the_time() -> None:
    async def slowly(server: LlmServer, stream: Any, request: behave.Request) -> None:
        await anyio.sleep(0.03)
        await behave.well(server, stream, request)

    began = time.monotonic()
    asked(*[slowly] * 6, share=0.25)
    assert time.monotonic() - began >= 6 * 0.03 * 4


@pytest.mark.parametrize(
    ("behaviour", "kind", "retryable"),
    [
        (behave.closes_at_once, LlmUnreachable, True),
        (behave.answers(b"no", 503), LlmRefused, True),
        (behave.answers({"error": {"message": "too long"}}, 400), LlmRefused, False),
        (behave.answers(b"<html>"), LlmNonsense, False),
        (behave.answers({"tokens": [1], "token_strs": [], "max_model_len": 9}), LlmNonsense, False),
        (behave.answers({"tokens": [], "token_strs": [], "max_model_len": 9}), ScoreRefused, False),
    ],
)
def test_what_goes_wrong_says_whether_it_may_go_well_later(
    behaviour: behave.Behaviour, kind: type[ApolloError], retryable: bool
) -> None:
    error, _ = asked(behaviour)
    assert type(error) is kind and error.retryable == retryable


def test_a_template_that_writes_an_answer_otherwise_after_less_is_found_out() -> None:
    def thinking(change: Callable[[dict[str, Any]], None]) -> behave.Behaviour:
        async def behave_(server: LlmServer, stream: Any, request: behave.Request) -> None:
            told = conversation_tokens(request.body)
            change(told)
            await behave.send(stream, json.dumps(told).encode())

        return behave_

    def longer(told: dict[str, Any]) -> None:
        told["tokens"].insert(-2, 5)
        told["token_strs"].insert(-2, "really")

    error, _ = asked(*[behave.well] * 3, thinking(longer))
    assert isinstance(error, ScoreRefused) and "otherwise where less was said" in str(error)


# --- as the daemon does it --------------------------------------------------------------------------------------------


def carried_out(
    tmp_path: Path, accepted: ev.ExampleAccepted, *args: str, after: int = 0
) -> tuple[inp.ExampleScoreDone, LlmServer]:
    """What the effect reports of an example in a journal."""

    async def main() -> tuple[inp.ExampleScoreDone, LlmServer]:
        found = list[inp.ExampleScoreDone]()

        async def submit(input_: inp.ExampleScoreDone) -> None:
            found.append(input_)

        write_ = await Journal.open(tmp_path / "journal.db")
        await write_.append([accepted], 1)
        async with serving() as server, anyio.create_task_group() as tasks:
            environ = {"APOLLOD_MODEL__PATH": "/m", "APOLLOD_ENGINE__PORT": str(server.port)}
            environ |= {"APOLLOD_ENGINE__ARGS": json.dumps(args)}
            environ |= {"APOLLOD_QUALITY__EVERY_STEPS": "0"}  # the guard has requests wait by priority
            executor = Executor(
                load_config(None, environ=environ), write_, cast(Any, None), found.append, submit, tasks
            )
            await executor.run(fx.ScoreExample(accepted.example, after))
            while not found:
                await anyio.sleep(0.01)
        await write_.close()
        assert all(OURS in request.headers for request in server.requests), "nobody takes it for a user's"
        return found[0], server

    return anyio.run(main)


def stripped_example() -> ev.ExampleAccepted:
    kept, tools, removed = strip([SYSTEM, QUESTION, ANSWER], Stripping("system"), [TOOL])
    record = record_of_forms(kept, tools)
    return ev.ExampleAccepted(
        example=record.id, record=msgspec.Raw(record.canonical), source="s", line=1, removed=removed
    )


@pytest.mark.parametrize(("args", "priority"), [((), None), (("--scheduling-policy", "priority"), 1)])
def test_an_example_of_the_journal_is_scored(tmp_path: Path, args: tuple[str, ...], priority: int | None) -> None:
    accepted = stripped_example()
    done, server = carried_out(tmp_path, accepted, *args)
    assert (done.example, done.error, done.tokens, done.weights_version) == (accepted.example, "", 4, 14)
    assert server.requests[0].body["messages"] == [SYSTEM, QUESTION]
    assert server.requests[0].body["model"] == "apollo"
    assert [request.body.get("priority") for request in server.requests[4:]] == [priority] * 2


def test_one_candidate_after_the_other_is_scored_by_a_daemon_without_children(tmp_path: Path) -> None:
    """Loop, executor and journal are those of the daemon; of its effects only questions to the engine are carried out,
    and the engine is there as soon as it is wanted."""

    class Outside:
        def __init__(self, executor: Executor) -> None:
            self.exit = executor.exit
            self._executor = executor

        async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
            if isinstance(effect, fx.SpawnEngine):
                return [
                    inp.EngineStarted(7, "/m"),
                    ev.EngineReady(7, "http://e", "m", "memfd", 1, 1, 0, 0, 0, 9, 0.1, {}),
                ]
            return await self._executor.run(effect) if isinstance(effect, fx.ScoreExample) else ()

    async def main() -> list[str]:
        journal = await Journal.open(tmp_path / "journal.db")
        async with serving() as server, anyio.create_task_group() as tasks:
            environ = {"APOLLOD_MODEL__PATH": "/m", "APOLLOD_ENGINE__PORT": str(server.port)}
            config = load_config(None, environ=environ)
            loop = Loop(State(), journal)
            executor = Executor(config, journal, cast(Any, None), loop.post, loop.submit, tasks)
            tasks.start_soon(loop.run, cast(Any, Outside(executor)))
            loop.post(inp.Started(1, "test", config.settings(), str(tmp_path)))
            one = stripped_example()
            lines = tuple(
                inp.Line(number=n, example=f"{n}" * 32, record=bytes(one.record), removed=one.removed)
                for n in (1, 2, 3)
            )
            await loop.submit(inp.LinesRead(inp.Batch("s", "/s", 1, 3, lines, hold=1.0), frozenset()))
            with anyio.move_on_after(5):
                while loop.state.scoring.stripped:
                    await loop.changed()
            executor.exit.set()
            loop.post(inp.Tick())
        await journal.close()
        rows = query(tmp_path / "journal.db", "SELECT example, divergence FROM scores ORDER BY seq").rows
        assert all(divergence == 0.0 for _, divergence in rows)
        return [example for example, _ in rows]

    assert anyio.run(main) == ["1" * 32, "2" * 32, "3" * 32]


def test_what_was_learned_is_scored_again_by_a_daemon(tmp_path: Path) -> None:
    """As above, with a trainer that learns at once."""

    class Outside:
        def __init__(self, executor: Executor) -> None:
            self.exit = executor.exit
            self._executor = executor

        async def run(self, effect: fx.Effect) -> Sequence[inp.Input]:
            match effect:
                case fx.SpawnEngine():
                    up = ev.EngineReady(7, "http://e", "m", "memfd", 1, 1, 0, 0, 0, 9, 0.1, {}, outlives_engine=True)
                    return [inp.EngineStarted(7, "/m"), up]
                case fx.SpawnTrainer():
                    return [inp.TrainerStarted(8)]
                case fx.AttachTrainer():
                    return [inp.Bound("f0", 1, 1, {})]
                case fx.Restore():
                    return [inp.Restored("f0", 10)]
                case fx.KeepBase(path=path):
                    return [inp.BaseKept(path, "reflink", 1, 0.1)]
                case fx.ProbeTrainer(step=step, number=number, digests=True):
                    return [inp.Probed(step, digests={"w": "d"}, number=number)]
                case fx.CompareWeights(step=step, number=number):
                    return [inp.Compared(step, number=number)]
                case fx.ProbeTrainer(step=step, number=number):
                    return [inp.Probed(step, (1, 2), (-1.0,), seconds=0.01, number=number)]
                case fx.ScoreProbe(step=step, number=number, trainer=trainer):
                    return [inp.Scored(step, number, "ids", trainer, (-1.0,), 0.1)]
                case fx.EncodeExamples(examples=ids):
                    return [inp.EncodeDone([inp.Encoded(id_, 9, 4, 0, "d") for id_ in ids])]
                case fx.RunStep(step=step):
                    return [inp.StepDone(step, True, 1.0, 1.0, 1.0, 9, 4, "f1", 0.1, 0, 0)]
                case fx.ScoreExample():
                    return await self._executor.run(effect)
            return ()

    async def main() -> None:
        journal = await Journal.open(tmp_path / "journal.db")
        async with serving() as server, anyio.create_task_group() as tasks:
            environ = {"APOLLOD_MODEL__PATH": "/m", "APOLLOD_ENGINE__PORT": str(server.port)}
            environ |= {"APOLLOD_REVIEW__DIVERGENCE": "all"}
            environ |= {"APOLLOD_QUALITY__EVERY_STEPS": "0"}  # else a baseline comes first
            config = load_config(
                None, environ=environ | {"APOLLOD_TRAINER__ALIGN_EVERY": "0", "APOLLOD_LESSONS__HOLD": "0"}
            )
            loop = Loop(State(), journal)
            executor = Executor(config, journal, cast(Any, None), loop.post, loop.submit, tasks)
            tasks.start_soon(loop.run, cast(Any, Outside(executor)))
            loop.post(inp.Started(1, "test", config.settings(), str(tmp_path)))
            loop.post(inp.TrainingPaused("t"))
            one = stripped_example()
            line = inp.Line(number=1, example="1" * 32, record=bytes(one.record), removed=one.removed)
            await loop.submit(inp.LinesRead(inp.Batch("s", "/s", 1, 1, (line,)), frozenset()))
            with anyio.fail_after(120):
                while not loop.state.scoring.scored:
                    await loop.changed()
                loop.post(inp.TrainingResumed("t"))
                while not loop.state.scoring.twice:
                    await loop.changed()
            executor.exit.set()
            loop.post(inp.Tick())
        await journal.close()

    anyio.run(main)
    kinds = "kind IN ('step.completed', 'score.requested', 'example.scored')"
    sql = f"SELECT kind, body ->> '$.after' FROM events WHERE {kinds} ORDER BY seq"
    assert query(tmp_path / "journal.db", sql).rows == [
        ("score.requested", 0), ("example.scored", 0), ("step.completed", None),
        ("score.requested", 1), ("example.scored", 1),
    ]  # fmt: skip
    rows = query(tmp_path / "journal.db", "SELECT without_context, after_step, after_without_context FROM scores").rows
    ((before, step, after),) = rows
    assert step == 1 and before == after, "the server says the same before and after"


def test_what_is_no_conversation_has_no_score(tmp_path: Path) -> None:
    accepted = ev.ExampleAccepted(example="e" * 32, record=msgspec.Raw(b'{"text":"a"}'), source="s", line=1)
    done, server = carried_out(tmp_path, accepted, after=7)
    assert (done.error, done.retryable, done.after, server.requests) == ("it is no conversation", False, 7, [])


def test_scored_examples_are_listed_by_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scored(example: str, divergence: float) -> ev.ExampleScored:
        return ev.ExampleScored(
            example=example, with_context=divergence - 2, without_context=-2.0, divergence=divergence, tokens=3,
            weights_version=0,
        )  # fmt: skip

    path = write(tmp_path / "journal.db", [*STORY, scored(A, 0.25), scored(C, 9.0), scored(F, 0.5), scored(C, 0.75)])
    assert main(["ctl", "example", "list", "--sort", "divergence", "--json", "--file", str(path)]) == 0
    listed = json.loads(capsys.readouterr().out)["examples"]
    assert [(e["id"], e["divergence"]) for e in listed] == [(C, 0.75), (F, 0.5), (A, 0.25)], "the newest score counts"
    command = ["ctl", "example", "list", "--sort", "divergence", "--state", "trained", "--limit", "1"]
    assert main([*command, "--file", str(path)]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert "divergence" in head and row.startswith(A) and "0.25" in row
    assert main(["ctl", "example", "show", F, "--file", str(path)]) == 0
    assert "divergence  0.500 a token" in capsys.readouterr().out
