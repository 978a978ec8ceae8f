"""A model over real HTTP that is asked by probes: it answers what it is told to, and scores any tokens."""

import json
import math
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from anyio.abc import SocketStream
from support.llm_server import Behaviour, LlmServer, Request, send

from apollod.curation.probes.probe_item import Probe
from apollod.supervisor.quality import prober

LIKELIEST = 4


_read = prober.shipped


@cache
def _shipped(level: int) -> tuple[Probe, ...]:
    return tuple(_read(level))


def few_shipped(monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
    """Leave of the probes that come with apollod the first `count` of each group and kind, where a test needs to see
    that they are asked, but not all 220 of them at every look (`test_probe_levels.py` has all asked). Their files are
    read once."""

    def few(level: int) -> list[Probe]:
        seen = Counter[tuple[str, str]]()
        found = list[Probe]()
        for probe in _shipped(level):
            seen[probe.group, probe.kind] += 1
            found += [probe] * (seen[probe.group, probe.kind] <= count)
        return found

    monkeypatch.setattr(prober, "shipped", few)


class Model:
    """`answers`: by what the user says last; a behaviour of the server instead of a text misbehaves. `certain`: the
    probability of the token that is given, `version`: of its weights, which every answer counts up by `steps`."""

    def __init__(self, answers: Mapping[str, "str | Behaviour"], certain: float = 0.5, version: int = 3) -> None:
        self.answers = dict(answers)
        self.certain = certain
        self.version = version
        self.steps = 0
        self.takes = 512
        """tokens of a request"""
        self.prompt_tokens = 3

    async def __call__(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        asked, said = request.body, None
        if request.path == "/tokenize":
            text = asked.get("prompt") or " ".join(one["content"] for one in asked["messages"])
            tokens = ids_of(text)
            said = self.answers.get(text)
            answer: dict[str, Any] = {"tokens": tokens, "token_strs": ["x"] * len(tokens), "max_model_len": self.takes}
        elif "prompt_logprobs" in asked:
            places = [self.place(token, asked["prompt_logprobs"]) for token in asked["prompt"][1:]]
            answer = {"choices": [{"text": "", "prompt_logprobs": [None, *places]}]}
        else:
            said = self.answers[asked["messages"][-1]["content"]]
            answer = self.completion(said, asked) if isinstance(said, str) else {}
        if callable(said):
            await said(server, stream, request)
            return
        version = {"X_Apollod_Weights_Version": str(self.version)} if request.path != "/tokenize" else {}
        self.version += self.steps if version else 0
        await send(stream, json.dumps(answer).encode(), **version)

    def place(self, token: int, count: int) -> dict[str, Any]:
        """The token that is given, and others; together `count`."""
        others = (1.0 - self.certain) / count
        likely = {token: self.certain, **{token + n: others for n in range(1, count)}}
        return {str(one): {"logprob": math.log(p)} for one, p in likely.items()}

    def completion(self, said: str, asked: dict[str, Any]) -> dict[str, Any]:
        ids = ids_of(said)
        logprobs = {"content": [{"token": "x", "logprob": -0.5}] * len(ids)}
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": said}, "token_ids": ids}
        usage = {"prompt_tokens": 10, "completion_tokens": len(ids)}
        return {
            "choices": [choice | {"logprobs": logprobs}],
            "usage": usage,
            "prompt_token_ids": [*range(1, 1 + self.prompt_tokens)],
        }


def ids_of(text: str) -> list[int]:
    return [10 + zlib.crc32(word.encode()) % 900 for word in text.split()]
