"""How an engine is asked what it thinks of an answer when it is told: over real HTTP, as the daemon does it. What our
engine says is in test_engine_share.py."""

import json
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from support import llm_server as behave
from support.llm_server import LlmServer, Request, conversation_tokens, good_answer, serving

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import teacher_of
from apollod.errors import ApolloError, LlmNonsense, LlmRefused, ScoreRefused
from apollod.wire.teacher import Teacher, read_teacher, write_teacher

TOLD = [{"role": "system", "content": "Greet the user first."}, {"role": "user", "content": "Open the door."}]
ANSWER = "Good day. Done."
OTHERWISE = {"tokens": [1], "token_strs": ["a"], "max_model_len": 9}


def scored(request: Request, places: int = 0) -> dict[str, Any]:
    """As vLLM does: in each place the token that is there and the k likeliest, which may be one of them; `places`: that
    are left out of each."""
    answer, k = good_answer(request), request.body["prompt_logprobs"]
    for n, place in enumerate(answer["choices"][0]["prompt_logprobs"][1:]):
        for rank in range(k - places):
            place.setdefault(str(2000 + (7 * n + rank) % 50), {"logprob": -2.0 - rank / 10, "rank": rank + 1})
    return answer


async def well(server: LlmServer, stream: SocketStream, request: Request) -> None:
    if request.path != "/v1/completions":
        await behave.well(server, stream, request)
        return
    await behave.send(stream, json.dumps(scored(request)).encode(), X_Apollod_Weights_Version="12-14")


def asked(*script: behave.Behaviour, **options: Any) -> tuple[Teacher | ApolloError, LlmServer]:
    async def main() -> tuple[Teacher | ApolloError, LlmServer]:
        async with serving(*script) as server, HttpLlm(Endpoint(server.url, "m", attempts=1)) as llm:
            server.otherwise = well
            try:
                return await teacher_of(llm, TOLD, ANSWER, **options), server
            except ApolloError as error:
                return error, server

    return anyio.run(main)


def test_the_answer_is_asked_about_after_what_was_told_with_the_end_of_its_turn() -> None:
    teacher, server = asked(k=3, priority=5)
    assert isinstance(teacher, Teacher)
    told = {"messages": [*TOLD, {"role": "assistant", "content": ANSWER}], "add_generation_prompt": False}
    tokens = conversation_tokens(told)
    assert [request.path for request in server.requests] == ["/tokenize", "/tokenize", "/v1/completions"]
    question = server.requests[2].body
    assert question["prompt"] == tokens["tokens"][:-1] and tokens["token_strs"][-2:] == ["<end>", "\u010a"]
    assert (question["prompt_logprobs"], question["priority"], question["temperature"]) == (3, 5, 1.0)
    assert teacher.answer.tolist() == tokens["tokens"][-5:-1] and tokens["token_strs"][-5:-2] == ANSWER.split()
    assert (teacher.k, teacher.version, len(teacher.ids)) == (3, 14, 12)
    assert read_teacher(write_teacher(teacher)) == teacher


def test_the_likeliest_come_first_and_no_more_than_were_asked_for() -> None:
    """The answer's own token is among them only where it is likely."""
    teacher, server = asked(k=3)
    assert isinstance(teacher, Teacher)
    prompt = server.requests[2].body["prompt"]
    for n in range(len(teacher.answer)):
        ids, logprobs = teacher.ids[3 * n : 3 * n + 3].tolist(), teacher.logprobs[3 * n : 3 * n + 3].tolist()
        place = len(prompt) - len(teacher.answer) + n - 1
        assert ids == [2000 + (7 * place + rank) % 50 for rank in range(3)], (
            "-2.0 and less, the token itself has its id"
        )
        assert logprobs == pytest.approx([-2.0, -2.1, -2.2])


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ((behave.well, behave.well, behave.answers({"choices": []})), LlmNonsense, "log-probabilities"),
        ((behave.answers(b"no", 404),), LlmRefused, "404"),
        ((behave.well, behave.answers(OTHERWISE)), ScoreRefused, "writes what was said before an answer otherwise"),
    ],
)  # fmt: skip
def test_an_engine_that_does_not_say_it_is_an_error(
    script: tuple[behave.Behaviour, ...], error: type[ApolloError], said: str
) -> None:
    found, _ = asked(*script)
    assert isinstance(found, error) and said in str(found)


def test_fewer_likely_tokens_than_were_asked_for_are_no_teacher() -> None:
    async def few(server: LlmServer, stream: SocketStream, request: Request) -> None:
        await behave.send(stream, json.dumps(scored(request, places=2)).encode())

    found, _ = asked(behave.well, behave.well, few, k=3)
    assert isinstance(found, LlmNonsense) and "the 3 likeliest tokens were asked for and 2 came" in str(found)


# --- where a token reaches over the end of the prompt -----------------------------------------------------------------

PIECES = ["<think>", "\n\n", "\n", "</think>", "Good day.", "<end>", "user:"]
"""A vocabulary in which two new lines are one token, as in those of Qwen."""


def pieces_of(text: str) -> list[int]:
    ids = []
    while text:
        ids.append(next(n for n, piece in enumerate(PIECES) if text.startswith(piece)))
        text = text[len(PIECES[ids[-1]]) :]
    return ids


def thinking(closed: bool) -> behave.Behaviour:
    """A template that invites thoughts (`closed`: their end as well) and writes empty ones where there are none."""

    async def answer(server: LlmServer, stream: SocketStream, request: Request) -> None:
        body = request.body
        if request.path == "/detokenize":
            await behave.send(stream, json.dumps({"prompt": "".join(PIECES[n] for n in body["tokens"])}).encode())
        elif request.path == "/tokenize":
            invited = "user:<think>\n" + ("\n</think>\n\n" if closed else "")
            whole = "user:<think>\n\n</think>\n\nGood day.<end>\n"
            text = body.get("prompt") or (invited if body["add_generation_prompt"] else whole)
            ids = pieces_of(text)
            texts = [PIECES[n].replace("\n", "\u010a") for n in ids]
            await behave.send(
                stream, json.dumps({"tokens": ids, "token_strs": texts, "max_model_len": 4096, "count": 1}).encode()
            )
        else:
            await behave.send(stream, json.dumps(scored(request)).encode())

    return answer


@pytest.mark.parametrize("closed", [False, True])
def test_an_empty_thought_is_before_the_answer_and_no_token_reaches_over_the_end_of_the_prompt(closed: bool) -> None:
    """As the trainer has it, which learns what the served model would write."""
    prompt, answer = "user:<think>\n\n</think>\n\n", "Good day.<end>"

    async def main() -> tuple[Teacher, LlmServer]:
        async with serving() as server, HttpLlm(Endpoint(server.url, "m", attempts=1)) as llm:
            server.otherwise = thinking(closed)
            return await teacher_of(llm, TOLD, "Good day.", 2), server

    teacher, server = anyio.run(main)
    assert teacher.answer.tolist() == pieces_of(answer)
    assert server.requests[-1].body["prompt"] == pieces_of(prompt) + pieces_of(answer)
    texts = [request.body["prompt"] for request in server.requests if isinstance(request.body.get("prompt"), str)]
    assert texts == ([] if closed else [prompt, answer])
    assert all(r.body["add_special_tokens"] is False for r in server.requests if "add_special_tokens" in r.body)
