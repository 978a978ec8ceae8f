"""A group of rollouts, from the prompt of an environment to a record and its file: over real HTTP to an engine that is
played, and with real vLLM."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream
from support import llm_server as behave
from support.llm_server import LlmServer, Request, good_answer, serving

from apollod.adapters.environments.atropos_service import AtroposService
from apollod.adapters.environments.environment_interface import Environment, Score
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.errors import EnvironmentFailed
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor
from apollod.wire.comparisons import GroupRecord, decode_learned
from apollod.wire.rollouts import Group, Rollout, read_group, rollout
from apollod.wire.teacher import digest_of

SECRET = "sk-ant-api03-" + "aB3dE6gH9" * 11
NONE = cast(Any, None)


class Sums:
    """An environment whose scores are given."""

    def __init__(self, *scores: Score | float, prompt: str = "1 + 1 = ?") -> None:
        self._scores = [one if isinstance(one, Score) else Score(one, "") for one in scores]
        self._prompt = prompt
        self.answers: list[str] = []

    async def prompt(self, number: int) -> list[dict[str, Any]]:
        if number > 1:
            raise EnvironmentFailed("sums", "has no more prompts", "ask it less")
        return [{"role": "user", "content": self._prompt}]

    async def score(self, number: int, messages: Sequence[dict[str, Any]], answers: Sequence[str]) -> list[Score]:
        self.answers += answers
        return self._scores

    async def close(self) -> None:
        pass


def config_for(state: Path, port: int, **settings: str) -> Config:
    given = ["model.path=/m", f"state.dir={state}", f"engine.port={port}", "environment.sums.entry=x"]
    given += ["environment.sums.group=4", *(f"{key.replace('__', '.')}={value}" for key, value in settings.items())]
    return load_config(None, given, {})


async def sampled(
    config: Config, environment: Environment | AtroposService, number: int = 1, journal: Any = NONE, leaks: Any = NONE
) -> Any:
    """What the effect reports."""
    found: list[inp.Input] = []
    async with anyio.create_task_group() as tasks:

        async def submit(input_: inp.Input) -> list[Any]:
            found.append(input_)
            return []

        executor = Executor(
            config, journal, NONE, NONE, submit, tasks, NONE, Dreamer(config), leaks, environments={"sums": environment}
        )
        await executor.run(fx.SampleGroup("sums", number, 1))
    return found[0]


def group_of(
    state: Path, *script: behave.Behaviour, environment: Sums, number: int = 1, leaks: Any = NONE, **settings: str
) -> Any:
    """(what is reported, what the engine was asked)"""

    async def run() -> Any:
        async with serving(*script) as server:
            server.otherwise = versioned
            config = config_for(state, server.port, **settings)
            return await sampled(config, environment, number, leaks=leaks), server.requests

    return anyio.run(run)


async def versioned(server: LlmServer, stream: SocketStream, request: Request) -> None:
    if request.path == "/tokenize":
        await behave.well(server, stream, request)
    else:
        await behave.send(stream, json.dumps(good_answer(request)).encode(), X_Apollod_Weights_Version="3-4")


def taught_from(first: int) -> behave.Behaviour:
    """An engine that is the teacher, too: of each place of a prompt its likeliest 16 tokens, from this one on."""

    async def answer(server: LlmServer, stream: SocketStream, request: Request) -> None:
        if "prompt_logprobs" not in request.body:
            return await versioned(server, stream, request)
        said = good_answer(request)
        for place in said["choices"][0]["prompt_logprobs"][1:]:
            for token in range(first, first + request.body["prompt_logprobs"]):
                place.setdefault(str(token), {"logprob": -2.0 - (token - first) / 10, "rank": 2})
        await behave.send(stream, json.dumps(said).encode())

    return answer


def test_a_teacher_says_what_it_would_say_at_each_token_of_the_answers(tmp_path: Path) -> None:
    environment = Sums()

    async def run() -> Any:
        async with serving() as server:
            server.otherwise = taught_from(5000)
            given = {f"endpoint.big.{key}": value for key, value in {
                "base_url": f"http://127.0.0.1:{server.port}/v1", "model": "big", "tokenizer": "/big",
            }.items()}  # fmt: skip
            taught = {"environment.sums.objective": "distill", "environment.sums.teacher": "big"}
            config = config_for(tmp_path, server.port, **taught, **given)
            return await sampled(config, environment), server.requests

    found, asked = anyio.run(run)
    assert isinstance(found, inp.GroupScored) and found.line is not None, found
    record = decode_learned(found.line.record)
    assert isinstance(record, GroupRecord) and record.group.objective == "distill" and environment.answers == []
    group = read_group((tmp_path / "blobs" / found.file).read_bytes())
    assert len(group.rollouts) == 4 and len(found.scores) == 4
    for one in group.rollouts:
        assert len(one.likeliest) == len(one.told) == 4 * 16 * sum(one.learned)
    questions = [request.body for request in asked if "prompt_logprobs" in request.body]
    assert [body["model"] for body in questions] == ["big"] * 4
    assert sorted(body["prompt"] for body in questions) == sorted(one.tokens for one in group.rollouts)


def test_a_group_is_sampled_scored_and_kept_beside_the_journal(tmp_path: Path) -> None:
    environment = Sums(1.0, 0.0, Score(None, "it broke"), 0.5)
    found, asked = group_of(tmp_path, environment=environment)
    assert isinstance(found, inp.GroupScored) and found.line is not None
    assert (found.scores, found.first, found.last, found.tokens, found.left_out) == ((1.0, 0.0, 0.5), 3, 4, 9, 1)
    assert environment.answers == ["text 0", "text 1", "text 2", "text 3"]
    record = decode_learned(found.line.record)
    assert isinstance(record, GroupRecord)
    form = record.group
    assert (form.environment, form.objective, form.rollouts) == ("sums", "grpo", found.file)
    assert form.answers == ["text 0", "text 1", "text 3"] and form.prompt[0].content == "1 + 1 = ?"
    blob = (tmp_path / "blobs" / found.file).read_bytes()
    assert digest_of(blob) == found.file
    first = read_group(blob).rollouts[0]
    assert (first.tokens, first.learned) == ([1, 2, 7, 8, 9], [False, False, True, True, True])
    assert (first.score, first.versions, len(first.logprobs)) == (1.0, (3, 4), 12)
    question = asked[1].body
    assert (question["n"], question["temperature"], question["top_p"], question["top_k"]) == (4, 1.0, 1.0, -1)
    assert question["logprobs"] is True and question["return_token_ids"] is True


def test_answers_are_so_short_that_a_group_fits_one_step(tmp_path: Path) -> None:
    """Each of them in whole chunks of 64 tokens; the played engine finds 8 tokens in the prompt."""
    _, asked = group_of(tmp_path, environment=Sums(1.0, 0.0, 0.0, 0.0), trainer__max_tokens="600")
    assert asked[1].body["max_tokens"] == 600 // 4 // 64 * 64 - 9
    found, _ = group_of(tmp_path, environment=Sums(prompt="word " * 200), trainer__max_tokens="600")
    assert isinstance(found, inp.GroupNotScored) and found.for_good and "leaves no room for answers" in found.reason


def test_a_secret_in_a_prompt_is_neither_asked_nor_stored(tmp_path: Path) -> None:
    found, asked = group_of(tmp_path, environment=Sums(1.0, 0.0, 0.0, 0.0, prompt=f"use {SECRET}"))
    assert SECRET not in str(asked[1].body) and SECRET.encode() not in found.line.record


def test_a_prompt_that_holds_a_probe_is_not_learned(tmp_path: Path) -> None:
    class Leaks:
        def said_of(self, records: Sequence[bytes]) -> list[str]:
            return ["the question of probe sky" if b"the sky" in record else "" for record in records]

    environment = Sums(1.0, 0.0, 0.0, 0.0, prompt="What colour is the sky?")
    found, _ = group_of(tmp_path, environment=environment, leaks=Leaks())
    assert (found.line, found.file) == (None, "") and "it holds the question of probe sky" in found.reason
    assert not (tmp_path / "blobs").exists()


@pytest.mark.parametrize(
    ("scores", "said"),
    [([1.0] * 4, "all 4 answers have the score 1"), ([0.3 + 3e-8 * n for n in range(4)], "all 4 answers have")],
)
def test_equal_scores_teach_nothing(tmp_path: Path, scores: list[float], said: str) -> None:
    found, _ = group_of(tmp_path, environment=Sums(*scores))
    assert isinstance(found, inp.GroupScored) and found.line is None and said in found.reason
    assert (found.asked, found.answer) == ("1 + 1 = ?", "text 0")
    assert not (tmp_path / "blobs").exists()


def test_fewer_than_two_scores_are_no_group(tmp_path: Path) -> None:
    found, _ = group_of(tmp_path, environment=Sums(1.0, *[Score(None, "ZeroDivisionError: division by zero")] * 3))
    assert isinstance(found, inp.GroupNotScored) and found.stage == "group" and not found.for_good
    assert "scored 1 of 4 answers (ZeroDivisionError: division by zero)" in found.reason


def without(field: str) -> behave.Behaviour:
    async def answer(server: LlmServer, stream: SocketStream, request: Request) -> None:
        said = good_answer(request)
        for choice in said["choices"]:
            del choice[field]
        await behave.send(stream, json.dumps(said).encode())

    return answer


def missing_one(server: LlmServer, stream: SocketStream, request: Request) -> Any:
    said = good_answer(request)
    said["choices"][0]["logprobs"]["content"][1] = {"token": "a", "logprob": -9999.0}
    return behave.send(stream, json.dumps(said).encode())


@pytest.mark.parametrize(
    ("answer", "stage", "for_good", "outside"),
    [
        (without("logprobs"), "sample", False, True), (without("token_ids"), "sample", False, True),
        (missing_one, "group", True, False),
    ],
)  # fmt: skip
def test_an_engine_that_says_too_little_gives_no_group(
    tmp_path: Path, answer: behave.Behaviour, stage: str, for_good: bool, outside: bool
) -> None:
    found, _ = group_of(tmp_path, behave.well, answer, environment=Sums(1.0, 0.0, 0.0, 0.0))
    assert isinstance(found, inp.GroupNotScored)
    assert (found.stage, found.for_good, found.outside) == (stage, for_good, outside), found.reason


def test_a_failure_of_the_environment_is_told_with_its_stage(tmp_path: Path) -> None:
    found, asked = group_of(tmp_path, environment=Sums(), number=2)
    assert found == inp.GroupNotScored(
        "sums", 2, 1, "prompt", "the environment sums has no more prompts; ask it less"
    ) and not asked  # fmt: skip


# --- a service that samples itself ---------------------------------------------------------------------------------


class Given(AtroposService):
    """A service that has one group."""

    def __init__(self, *rollouts: Rollout) -> None:
        super().__init__("http://127.0.0.1:9", 2, 64)
        self._rollouts = rollouts

    async def next_group(self) -> tuple[Rollout, ...]:
        return self._rollouts


class Journal:
    """Knows these examples."""

    def __init__(self, *examples: str) -> None:
        self._examples = set(examples)

    async def known(self, ids: Sequence[str]) -> set[str]:
        return self._examples & set(ids)


ROLLOUTS = (
    rollout([5, 6, 7, 8], [False, False, True, True], [-0.5, -0.25], 1.0, 0.7),
    rollout([5, 6, 9], [False, False, True], [-2.0], 0.0, 0.7),
)


def taken(state: Path, journal: Journal, *rollouts: Rollout) -> Any:
    async def run() -> Any:
        async with serving() as server:
            server.otherwise = told
            config = config_for(
                state, server.port, environment__sums__kind="atropos", environment__sums__url="http://x"
            )
            return await sampled(config, Given(*rollouts), journal=journal)

    return anyio.run(run)


async def told(server: LlmServer, stream: SocketStream, request: Request) -> None:
    assert request.path == "/detokenize"
    text = " ".join(map(str, request.body["tokens"]))
    await behave.send(stream, json.dumps({"prompt": text}).encode())


def test_a_group_of_a_service_is_kept_with_its_texts_and_taken_once(tmp_path: Path) -> None:
    found = taken(tmp_path, Journal(), *ROLLOUTS)
    assert isinstance(found, inp.GroupScored) and found.line is not None, found
    record = decode_learned(found.line.record)
    assert isinstance(record, GroupRecord)
    assert [one.content for one in record.group.prompt] == ["5 6"] and record.group.answers == ["7 8", "9"]
    assert (found.scores, found.first, found.tokens) == ((1.0, 0.0), -1, 3)
    assert read_group((tmp_path / "blobs" / found.file).read_bytes()) == Group(ROLLOUTS)
    again = taken(tmp_path, Journal(found.line.example), *ROLLOUTS)
    assert (again.line, again.reason) == (None, "the same group came before")


def test_a_group_of_a_service_that_cannot_be_learned_is_no_group(tmp_path: Path) -> None:
    found = taken(tmp_path, Journal(), ROLLOUTS[0])
    assert isinstance(found, inp.GroupNotScored) and found.for_good and "has 1 rollouts" in found.reason


# --- real vLLM --------------------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_what_vllm_says_of_sampled_tokens_is_what_it_says_of_them_as_a_prompt(vllm: Any, tmp_path: Path) -> None:
    """So the log-probabilities of a group are those of its tokens, the token that ends the turn included."""

    async def run() -> tuple[inp.GroupScored, list[tuple[float, ...]]]:
        config = config_for(tmp_path, vllm.port, engine__served_name="tiny", environment__sums__max_tokens="12")
        found = await sampled(config, Sums(1.0, 0.0, 0.5, 0.25))
        assert isinstance(found, inp.GroupScored), found
        group = _group(tmp_path, found)
        async with HttpLlm(Endpoint(vllm.url("/v1"), "tiny")) as llm:
            scored = [(await llm.score(one.tokens)).logprobs for one in group.rollouts]
        return found, scored

    found, scored = anyio.run(run)
    for one, again in zip(_group(tmp_path, found).rollouts, scored, strict=True):
        mu = memoryview(one.logprobs).cast("f").tolist()
        assert 0 < len(mu) <= 12 and sum(one.learned) == len(mu)
        apart = [abs(a - b) for a, b in zip(mu, again[-len(mu) :], strict=True)]
        assert sum(apart) / len(apart) < 0.1


def _group(state: Path, found: inp.GroupScored) -> Group:
    return read_group((state / "blobs" / found.file).read_bytes())
