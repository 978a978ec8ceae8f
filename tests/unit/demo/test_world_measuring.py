"""A served model is measured by what it answers: one that does what it is told, one that has learned, one that
leaks."""

import json
from collections.abc import Callable
from functools import partial

import anyio
import pytest
from anyio.abc import SocketStream
from support.judge_server import completion
from support.llm_server import LOGPROB, Behaviour, LlmServer, Request, send, serving

from apollod.demo.world import exam, instructions, measuring, reading
from apollod.demo.world.exam import Rate
from apollod.demo.world.instructions import KINDS, UNPRACTISED, Instruction
from apollod.demo.world.measuring import Measured
from apollod.demo.world.scenarios import Split
from apollod.demo.world.standing_before import standing_before

CAPS, END = Instruction("caps"), Instruction("end", "Over")
PATTERNS = (CAPS, END)
EACH = 4
Answers = Callable[[tuple[Instruction, ...]], tuple[Instruction, ...]]


def test_surroundings_are_those_of_tests_and_stand_before_the_same_questions() -> None:
    asked = measuring.asked(PATTERNS, 12, around=5)
    around = [case for case in asked if case.around.kind != "none"]
    assert len(around) == 5 * 3 * 4 * len(PATTERNS) and {case.around.kind for case in around} == {*exam.AROUND}
    assert {case.group[0] for case in around if case.around.kind == "own"} == {
        f"{way}, own" for way in ("told", "untold", "opposite", "cancelled")
    }
    practised = {one.id for kind in exam.AROUND for one in standing_before(kind, "practice")}
    plain = {(case.group, case.scenario, case.system) for case in asked}
    for case in around:
        way, _, _ = case.group[0].partition(",")
        assert case.around.id not in practised and ((way, case.group[1]), case.scenario, case.system) in plain
        said = "".join(one["content"] for one in case.messages if one["role"] == "system")
        assert reading.said_in(said, case.scenario) == case.said and (case.around.system or "") in said


def test_opposites_are_asked_in_wordings_that_no_practice_has() -> None:
    practised = {
        text for one in PATTERNS for number, text in enumerate(one.opposite.texts) if number not in UNPRACTISED
    }
    opposites = [case for case in measuring.asked(PATTERNS, 12, around=1) if case.group[0] in ("opposite", "cancelled")]
    asked = {case.system for case in opposites}
    assert len(asked) > 2 and not [text for text in asked for other in practised if other in str(text)]


def test_what_is_asked_is_held_out_and_about_the_patterns_own_words() -> None:
    asked = measuring.asked(PATTERNS, 12)
    assert {case.group for case in asked} == {
        *((way, kind) for way in ("told", "untold", "opposite", "cancelled") for kind in ("caps", "end")),
        *(("told", kind) for kind in KINDS), ("facts", ""), ("talk", ""),
    }  # fmt: skip
    for case in asked:
        assert case.group[0] in ("facts", "talk") or case.scenario.task.split is Split.TEST  # type: ignore[union-attr]
        if case.group[1] == "end":
            assert case.looked_for == END or {one.word for one in case.said} == {"Over"}
        assert reading.said_in(case.system or "", case.scenario) == case.said


@pytest.mark.parametrize(
    "answers, expected",
    [
        (lambda said: said, {"told": 4, "untold": 0, "opposite": 4, "cancelled": 4}),
        (lambda said: (END, CAPS, *said), {"told": 4, "untold": 4, "opposite": 4, "cancelled": 4}),
        (lambda said: (*said, END, CAPS), {"told": 4, "untold": 4, "opposite": 0, "cancelled": 0}),
        (lambda said: (), {"told": 0, "untold": 0, "opposite": 4, "cancelled": 4}),
    ],
    ids=["told only", "learned", "leaks", "deaf"],
)
def test_what_it_does_is_what_is_measured(answers: Answers, expected: dict[str, int]) -> None:
    measured = anyio.run(partial(measure, answering(answers)))
    for way, count in expected.items():
        assert [measured.rates[way, kind] for kind in ("caps", "end")] == [Rate(count, EACH)] * 2, way
    assert measured.rates["facts", ""] == Rate(48, 48) and measured.rates["talk", ""] == Rate(6, 6)
    assert measured.loss == pytest.approx(-LOGPROB)


def test_what_is_scored_is_the_right_answer_and_no_token_of_the_prompt() -> None:
    """A server for which a token of the answer is improbable, and one of the prompt impossible."""
    asked = measuring.asked(PATTERNS, EACH)
    probed = measuring.probes(asked)
    assert {case.group[0] for case in probed} == {"told", "opposite", "cancelled"}
    right = {instructions.answer(case.scenario, case.said) for case in probed}
    said: set[str] = set()
    measured = anyio.run(partial(measure, answering(lambda said: said, said)))
    assert measured.loss == pytest.approx(-LOGPROB)
    assert right == said


async def measure(behaviour: Behaviour) -> Measured:
    async with serving() as server:
        server.otherwise = behaviour
        asked, told = measuring.asked(PATTERNS, EACH), []
        ask = partial(measuring.measure, server.url, "m", END_ID, asked, lambda *done: told.append(done))
        measured = await anyio.to_thread.run_sync(ask)
    assert told[-1] == (len(asked), len(asked)) and server.most_active <= measuring.AT_ONCE
    return measured


END_ID = 1
_PROMPT, _ANSWER = 2, 3


def answering(answers: Answers, answered: set[str] | None = None) -> Behaviour:
    """A model that answers right under `answers` of what it was told. A token is a letter; `answered`: answers of which
    it was asked the tokens."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        asked = request.body
        if request.path == "/tokenize":
            *said, last = asked["messages"]
            ids = [_PROMPT] * sum(len(one["content"]) for one in said)
            if last["role"] == "assistant":
                ids += [*[_ANSWER] * len(last["content"]), END_ID, _PROMPT]
                if answered is not None:
                    answered.add(last["content"])
            else:
                ids += [_PROMPT] * len(last["content"])
            value = {"tokens": ids, "token_strs": ["a"] * len(ids), "count": len(ids), "max_model_len": 4096}
        elif request.path.endswith("/chat/completions"):
            *system, user = (one["content"] for one in asked["messages"])
            scenario = reading.scenario_of(user)
            said = reading.said_in(" ".join(system), scenario)
            assert scenario is not None and said is not None and asked["temperature"] == 0
            value = completion(instructions.answer(scenario, answers(said)))
        else:
            scored = [
                {str(token): {"logprob": -99.0 if token == _PROMPT else LOGPROB}} for token in asked["prompt"][1:]
            ]
            value = {"choices": [{"index": 0, "text": "", "prompt_logprobs": [None, *scored]}]}
        await send(stream, json.dumps(value).encode())

    return behave
