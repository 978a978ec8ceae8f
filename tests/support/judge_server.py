"""A judge over real HTTP: right about the planted cases that come with apollod, and told what to do about the rest."""

import json
import re
from collections.abc import Callable
from typing import Any

from anyio.abc import SocketStream
from support.llm_server import Behaviour, LlmServer, Request, send

from apollod.curation.judge_question import question_about
from apollod.supervisor.judge import planted_cases

RIGHT = {question_about(case.canonical).messages[1]["content"]: case.planted.expected for case in planted_cases(())}
"""The right verdict by the transcript of the case."""
VERSION = {"X_Apollod_Weights_Version": "5-7"}
_JUDGED = re.compile(r"^--- \w{8} assistant, to be judged\n(.*?)\n--- ", re.MULTILINE | re.DOTALL)

About = Callable[[str], "str | Behaviour"]
"""What is said of the turn that is judged: content of the answer, or a behaviour of the server."""


def verdict(said: str, quote: str, better: str | None = None, reason: str = "because") -> str:
    return json.dumps({"quote": quote, "reason": reason, "verdict": said, "better": better})


def completion(content: str, finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "c", "model": "judge", "usage": {"prompt_tokens": 100, "completion_tokens": 20},
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}],
    }  # fmt: skip


def judging(about: About, planted: Callable[[str], str] = lambda expected: expected) -> Behaviour:
    """`planted`: what is said of a case whose right verdict is given."""

    async def behave(server: LlmServer, stream: SocketStream, request: Request) -> None:
        assert request.path == "/v1/chat/completions"
        assert request.body["response_format"]["json_schema"]["strict"] is True
        transcript = request.body["messages"][1]["content"]
        judged = _JUDGED.findall(transcript)[-1]
        expected = RIGHT.get(transcript)
        said = verdict(planted(expected), judged.splitlines()[0]) if expected else about(judged)
        if isinstance(said, str):
            await send(stream, json.dumps(completion(said)).encode(), **VERSION)
        else:
            await said(server, stream, request)

    return behave


def by_words(judged: str) -> str:
    """Good, unless the turn says what it is; `better` has a better answer, too."""
    if judged.startswith("better"):
        return verdict("bad", judged, "a much improved answer")
    found = judged.split()[0]
    return verdict(found if found in ("good", "bad", "unsure") else "good", judged)


def asked_about(server: LlmServer, words: str) -> int:
    """How many requests were about a turn with these words."""
    return sum(words in request.body["messages"][1]["content"] for request in server.requests)
