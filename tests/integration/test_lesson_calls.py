"""Calls for lessons, over real HTTP: what the served model is asked, what counts as right, and what is learned."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream
from msgspec.structs import replace
from support.llm_server import LlmServer, Request, answers, conversation_tokens, good_answer, send, serving

from apollod.adapters.journal import blobs
from apollod.adapters.journal.writer import Journal
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Given
from apollod.core.facts.lessons.events import Wording
from apollod.core.facts.lessons.inputs import Ask
from apollod.core.facts.lessons.stages import Stage
from apollod.core.rules.dreams.policy import SIDE_BY_SIDE
from apollod.curation.lessons.line_lessons import asked_by
from apollod.supervisor.config import load_config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.executor import Executor
from apollod.wire.records import decode_record, record_of
from apollod.wire.teacher import read_teacher

NONE = cast(Any, None)
GIVEN = Given(question="What port does Quillon listen on?", answer="Quillon listens on port 7341.")
WORDING = Wording(GIVEN.question, "7341", "given", GIVEN.answer)
TOLD = "Fact: Quillon listens on port 7341."
PREPARE = fx.PrepareLesson("L3", 1, 2, TOLD, WORDING, "told")
TOOTHLESS = answers({"error": {"message": "not here"}}, 501)

Says = Callable[[dict[str, Any]], str]


def asking(*asks: Ask, mode: ev.AskMode = "bare", told: str = "", not_these: tuple[str, ...] = ()) -> fx.AskLesson:
    return fx.AskLesson("L3", 1, Stage.TESTING, mode, 2, 5, told, asks, not_these)


def of(
    effect: fx.Effect, tmp_path: Path, says: Says, *sets: str, scores: Any = None, events: Sequence[ev.Event] = ()
) -> tuple[Any, LlmServer]:
    """The input that answers the effect, and the server that was asked. `scores`: how it behaves where it is asked for
    log-probabilities; `events`: what the journal has, where one is needed."""
    inputs: list[inp.Input] = []

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        if request.path == "/tokenize":
            await send(stream, json.dumps(conversation_tokens(request.body)).encode())
        elif request.path == "/detokenize":
            words = " ".join(map(str, request.body["tokens"]))
            await send(stream, json.dumps({"prompt": words}).encode())
        elif not request.path.endswith("/chat/completions"):
            await scores(server, stream, request)
        else:
            body = good_answer(request)
            await anyio.sleep(0.01)
            said = body["choices"][0]["message"]["content"] = says(request.body)
            body["choices"][0]["finish_reason"] = "length" if said.endswith("...") else "stop"
            newer = "Question 3?" in str(request.body)
            await send(stream, json.dumps(body).encode(), X_Apollod_Weights_Version="5" if newer else "4")

    async def run() -> LlmServer:
        async with serving() as server, anyio.create_task_group() as tasks:
            server.otherwise = behave
            given = ["model.path=/m", f"state.dir={tmp_path}", f"engine.port={server.port}"]
            given += [one.format(port=server.port) for one in sets]

            async def submit(input_: inp.Input) -> Sequence[ev.Recorded]:
                inputs.append(input_)
                return []

            config = load_config(None, given, {})
            journal = await Journal.open(config.journal_path) if events else NONE
            if events:
                await journal.append(events, 1)
            await Executor(config, journal, NONE, NONE, submit, tasks, NONE, Dreamer(config)).run(effect)
            with anyio.fail_after(120):
                while not inputs:
                    await anyio.sleep(0.003)
            if events:
                await journal.close()
            return server

    server = anyio.run(run)
    (input_,) = inputs
    return input_, server


async def likeliest(server: LlmServer, stream: SocketStream, request: Request) -> None:
    """As many of the likeliest tokens in each place as are asked for."""
    body, asked = good_answer(request), request.body
    scored = [
        {str(token + n): {"logprob": -1.0 - n} for n in range(asked["prompt_logprobs"])}
        for token in asked["prompt"][1:]
    ]  # fmt: skip
    body["choices"][0]["prompt_logprobs"] = [None, *scored]
    await send(stream, json.dumps(body).encode(), X_Apollod_Weights_Version="4")


def test_wordings_come_from_the_frames_that_ship_without_asking_anyone(tmp_path: Path) -> None:
    worded, server = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, lambda _: "")
    assert isinstance(worded, inp.LessonWorded) and not server.requests and not worded.model
    assert GIVEN.answer in worded.told and worded.worded.question == GIVEN.question
    assert len(worded.worded.practice) >= 4 and len(worded.worded.held_out) >= 2
    assert all(one.says == GIVEN.answer for one in worded.worded.practice)


def said(question: str, answer: str, **more: str) -> ev.ExampleAccepted:
    record = record_of(
        more or {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
    )
    return ev.ExampleAccepted(record.id, msgspec.Raw(record.canonical), "f", 1, question=asked_by(question))


def test_a_lesson_hears_of_the_lines_that_answer_its_question_otherwise(tmp_path: Path) -> None:
    question = "What port does Quillon listen on"
    rendered = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    long = "That depends on a file which nobody has read in years and which says 80 or not."
    wrong = [
        said(question, "Quillon listens on port 80."),
        said(f"Hi! {question}, please?", "It listens on port 8080"),
        said(question, "", prompt=rendered, completion="443"),
        said(question, long),
    ]
    declined = said(question, "9")
    events = [
        said(question, "Port 7,341."), *wrong, declined, said("What port does Tern listen on?", "80"),
        ev.ExampleDeclined(declined.example, "bulk", "p"),
        ev.LessonGiven("L2", GIVEN, "p"), ev.LessonGiven("L3", GIVEN, "p"), said(question, "22"),
    ]  # fmt: skip
    worded, _ = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, lambda _: "", events=events)
    found = [inp.Contradicted(one.example, says) for one, says in zip(wrong, ["80", "8080", "443", ""], strict=True)]
    assert worded.contradicted == tuple(reversed(found))


IMAGINED = (
    "Sure!\n```json\n" + json.dumps([
        {"question": "Which port must I open for Quillon?", "answer": "7341"},
        {"question": "Is 7341 the port of Quillon?", "answer": "7341"},
        {"question": "Which port is unanswerable for Quillon?", "answer": "7341"},
    ]) + "\n```",
    json.dumps({"questions": [
        {"question": "which port must I open for Quillon", "answer": "7341"},
        {"question": "Under which port can Quillon be reached?", "answer": "7341"},
    ]}),
)  # fmt: skip


def imagination(*said: str) -> Says:
    """What the endpoint of `[dream]` says in turn; the served model answers rightly, but for what is unanswerable."""
    left = list(said)

    def says(body: dict[str, Any]) -> str:
        if body["model"] == "muse":
            return left.pop(0)
        return "No idea." if "unanswerable" in body["messages"][-1]["content"] else "It is 7341."

    return says


WITH_MUSE = ("endpoint.muse.base_url=http://127.0.0.1:{port}/v1", "endpoint.muse.model=muse", "dream.endpoint=muse")


def test_an_imagination_adds_wordings_that_the_told_model_answers(tmp_path: Path) -> None:
    worded, server = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, imagination(*IMAGINED), *WITH_MUSE)
    assert worded.model == "muse" and worded.tokens == 2 * 5 + 3 * 5
    plain, _ = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, lambda _: "")
    practice, held_out = worded.worded.practice, worded.worded.held_out
    assert [(one.prompt, one.how) for one in practice if one not in plain.worded.practice] == [
        ("Which port must I open for Quillon?", "imagined")
    ]
    assert [one.prompt for one in held_out if one not in plain.worded.held_out] == [
        "Under which port can Quillon be reached?"
    ]
    assert (worded.worded.question, worded.worded.key) == (plain.worded.question, plain.worded.key)
    assert {reason: worded.worded.dropped.get(reason) for reason in ("leak", "near-copy", "told")} == {
        "leak": 1, "near-copy": 1, "told": 1,
    }  # fmt: skip
    asked = [one.body for one in server.requests if one.body["model"] == "muse"]
    assert practice[0].prompt not in str(asked[0]) and practice[0].prompt in str(asked[1]), "it hears what exists"


def test_an_imagination_is_asked_which_lessons_on_the_subject_cannot_be_true_any_more(tmp_path: Path) -> None:
    others = {
        "L1": Given("Quillon is reached at port 80."), "L4": Given("The Tern listens on port 7."),
        "L2": Given(question="Who wrote Quillon?", answer="It's Ada Penn."), "L5": Given("Quillon listens on port 22."),
    }  # fmt: skip
    known = ("L1", "L2", "L4")
    events: list[ev.Event] = [ev.LessonGiven(lesson, given, "p") for lesson, given in others.items()]
    events += [
        ev.LessonKnown(lesson=one, step=1, before={}, after=(4, 4), steps=1, drift=0.0, seconds=1.0, prompt="p", asks=4)
        for one in known
    ]
    says = imagination(*IMAGINED, "Only this one: [2]")
    worded, server = of(fx.WordLesson("L6", 1, GIVEN), tmp_path, says, *WITH_MUSE, events=events)
    assert worded.replaces == ("L1",) and worded.tokens == 3 * 5 + 3 * 5
    asked = server.requests[-1].body["messages"][-1]["content"]
    texts = ("older fact 1\nWho wrote Quillon? It's Ada Penn.", "older fact 2\nQuillon is reached at port 80.")
    assert all(text in asked for text in texts) and "Tern" not in asked and "port 22" not in asked


def test_an_imagination_that_gives_nothing_is_not_waited_for(tmp_path: Path) -> None:
    def gone(body: dict[str, Any]) -> str:
        raise anyio.ClosedResourceError

    plain, _ = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, lambda _: "")
    for says, model in ((gone, ""), (imagination("I cannot.", "{"), "muse")):
        worded, _ = of(fx.WordLesson("L3", 1, GIVEN), tmp_path, says, *WITH_MUSE)
        assert worded.worded == plain.worded and worded.model == model


def test_questions_are_asked_side_by_side_and_answers_come_in_their_order(tmp_path: Path) -> None:
    asks = [Ask(n, f"Question {n}?", "7341", seed=None if n < 4 else n) for n in range(24)]
    said, server = of(
        asking(*asks), tmp_path, lambda body: body["messages"][-1]["content"] + " It is 7,341." * (body["seed"] != 7)
        if "seed" in body else "No idea, perhaps 17341?",
    )  # fmt: skip
    assert isinstance(said, inp.LessonAsked) and (said.stage, said.mode, said.round) == (Stage.TESTING, "bare", 2)
    assert (said.lesson, said.made, said.weights_version, said.tokens) == ("L3", 5, 4, 24 * 5)
    assert [(one.wording, one.seed) for one in said.answers] == [(one.wording, one.seed) for one in asks]
    assert [one.passed for one in said.answers] == [False] * 4 + [n != 7 for n in range(4, 24)]
    assert said.answers[9].text.startswith("Question 9?") and 1 < server.most_active <= SIDE_BY_SIDE
    by_prompt = {one.body["messages"][0]["content"]: one.body for one in server.requests}
    assert {one["temperature"] for one in by_prompt.values() if "seed" not in one} == {0.0}
    drawn = {name: by_prompt["Question 9?"][name] for name in ("temperature", "top_p", "seed")}
    assert drawn == {"temperature": 1.0, "top_p": 0.9, "seed": 9}


def test_told_is_the_system_message_and_what_was_right_before_does_not_pass(tmp_path: Path) -> None:
    ask = Ask(0, GIVEN.question, "7341")
    both = asking(ask, mode="told", told=TOLD, not_these=("80",))
    said, server = of(both, tmp_path, lambda _: "It is 7341, or 80.")
    assert server.requests[0].body["messages"] == [
        {"role": "system", "content": TOLD}, {"role": "user", "content": GIVEN.question},
    ]  # fmt: skip
    assert (said.mode, said.answers[0].passed) == ("told", False)
    said, _ = of(replace(both, not_these=()), tmp_path, lambda _: "It is 7341, or 80.")
    assert said.answers[0].passed


def test_one_answer_that_fails_is_told_once_with_why(tmp_path: Path) -> None:
    def refuses(body: dict[str, Any]) -> str:
        raise anyio.ClosedResourceError

    failed, server = of(asking(*[Ask(n, "Why?", "so") for n in range(24)]), tmp_path, refuses)
    assert isinstance(failed, inp.LessonCallFailed) and len(server.requests) <= SIDE_BY_SIDE
    assert (failed.lesson, failed.stage, failed.attempt, failed.cause) == ("L3", Stage.TESTING, 1, "endpoint")


def learned(prepared: inp.LessonPrepared) -> list[dict[str, str]]:
    assert prepared.line.example and not prepared.line.reason
    record = decode_record(prepared.line.record)
    return [{"role": one.role, "content": str(one.content)} for one in record.messages]  # type: ignore[union-attr]


def test_what_is_learned_is_bare_and_its_teacher_is_the_told_model(tmp_path: Path) -> None:
    prepared, server = of(PREPARE, tmp_path, lambda _: "", scores=likeliest)
    assert isinstance(prepared, inp.LessonPrepared) and (prepared.lesson, prepared.number) == ("L3", 2)
    assert learned(prepared) == [
        {"role": "user", "content": GIVEN.question}, {"role": "assistant", "content": GIVEN.answer},
    ]  # fmt: skip
    teacher = read_teacher((tmp_path / blobs.NAME / prepared.teacher).read_bytes())
    assert len(teacher.answer) == len(GIVEN.answer.split()) + 1  # and the end of the turn
    told = [one.body["messages"] for one in server.requests if "messages" in one.body]
    assert told and all(one[0] == {"role": "system", "content": TOLD} for one in told)


@pytest.mark.parametrize(
    "said, expected",
    [
        ("Port 7341 it is.", "Port 7341 it is."), ("Port 80.", GIVEN.answer), ("7341, and so on...", GIVEN.answer),
        ("<think>80?</think>\n\nPort 7341.", "Port 7341."),
    ],
)  # fmt: skip
def test_the_models_own_answer_is_learned_where_it_is_right(tmp_path: Path, said: str, expected: str) -> None:
    prepared, server = of(replace(PREPARE, practice="own"), tmp_path, lambda _: said, scores=likeliest)
    assert learned(prepared)[1]["content"] == expected and prepared.teacher and prepared.tokens == 5
    (asked,) = (one.body for one in server.requests if one.path.endswith("/chat/completions"))
    assert asked["messages"][0]["content"] == TOLD and asked["temperature"] == 1.0


def test_without_log_probabilities_the_given_answer_is_learned_as_it_is(tmp_path: Path) -> None:
    prepared, _ = of(PREPARE, tmp_path, lambda _: "", scores=TOOTHLESS)
    assert learned(prepared)[1]["content"] == GIVEN.answer and not prepared.teacher


def test_an_engine_that_is_too_busy_for_a_teacher_is_asked_again(tmp_path: Path) -> None:
    failed, _ = of(PREPARE, tmp_path, lambda _: "", scores=answers({}, 503, Retry_After="7"))
    assert isinstance(failed, inp.LessonCallFailed)
    assert (failed.stage, failed.cause, failed.retry_after_s) == (Stage.PREPARING, "endpoint", 7.0)


def test_the_given_answer_is_learned_without_asking_anyone(tmp_path: Path) -> None:
    prepared, server = of(replace(PREPARE, practice="given"), tmp_path, lambda _: "")
    assert learned(prepared)[1]["content"] == GIVEN.answer and not prepared.teacher and not server.requests
