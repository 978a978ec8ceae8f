"""Users of the served model, who ask all the time, for whole and streamed answers, and cancel some of them."""

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from apollod.demo.world import instructions, scenarios
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Scenario, Split

WAIT_S = 120.0
"""time limit of an answer; the machine may be busy"""
PAUSE_S = (0.2, 1.8)
DOWN_PAUSE_S = 0.5
TOKENS = 32
STREAMED, CANCELLED = 0.35, 0.15
"""as shares of all requests"""
ENDS = ("stop", "length")

Answer = dict[str, Any]


class Malformed(Exception):
    """An answer that breaks the promises of the API."""


class Users:
    """`with Users(port, model, seed, count, keep)`: `count` users until the end of the block; `keep` receives each
    request with its end. `newest` is the latest answer, for feedback."""

    def __init__(self, port: int, model: str, seed: str, count: int, keep: Callable[[Answer], None]) -> None:
        self.seed = seed
        self._port, self._model, self._keep = port, model, keep
        self._end = threading.Event()
        self.newest: tuple[str, Scenario] | None = None
        """id of the latest answer, and the scenario of its request"""
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}:user:{n}"),), daemon=True)
            for n in range(count)
        ]

    def __enter__(self) -> "Users":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chance: random.Random) -> None:
        while not self._end.is_set():
            answer = self._ask(chance)
            self._keep(answer)
            self._end.wait(chance.uniform(*PAUSE_S) if answer["end"] == "good" else DOWN_PAUSE_S)

    def _ask(self, chance: random.Random) -> Answer:
        """Make one request. `end`: good; down (nobody answered, or the connection broke); late; malformed."""
        way = draw_way(chance)
        scenario = scenarios.draw(chance, Split.TEST)
        asked = Instruction("greet") if chance.random() < 0.2 else None
        began = time.time()
        answer: Answer = {"at": began, "way": way, "end": "good"}
        try:
            said = self._said(answer, scenario, asked)
            answer["right"] = said is None or instructions.shown(scenario, said) is not None
        except TimeoutError:
            answer |= {"end": "late"}
        except Malformed as error:
            answer |= {"end": "malformed", "why": str(error)[:500]}
        except (OSError, http.client.HTTPException) as error:
            answer |= {"end": "down", "why": repr(error)[:200]}
        return answer | {"seconds": time.time() - began}

    def _said(self, answer: Answer, scenario: Scenario, asked: Instruction | None) -> str | None:
        """The text of an answer; None for a cancelled one."""
        way = answer["way"]
        body = {
            "model": self._model, "messages": conversation(asked.texts[0] if asked else None, scenario),
            "max_tokens": TOKENS, "temperature": 0.7, "stream": way != "whole",
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=WAIT_S)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            check_status(response.status)
            answer["labelled"] = bool(response.getheader("X-Apollod-Weights-Version"))
            if way == "whole":
                ident, text = whole_of(response.read())
                self.newest = ident, scenario
                return text
            lines = iter(response.readline, b"")
            if way == "cancelled":
                next(lines, b"")
                return None
            return streamed_of(lines)
        finally:
            connection.close()


def draw_way(chance: random.Random) -> str:
    """A kind of request: `whole`, `streamed`, `cancelled`."""
    drawn = chance.random()
    if drawn < CANCELLED:
        return "cancelled"
    return "streamed" if drawn < CANCELLED + STREAMED else "whole"


def check_status(status: int) -> None:
    """Raises Malformed for an unexpected status; ConnectionError for one of an engine that goes down."""
    if status >= 500:
        raise ConnectionError(f"status {status}")
    if status != 200:
        raise Malformed(f"status {status}")


def whole_of(content: bytes) -> tuple[str, str]:
    """Id and text of a chat completion. Raises Malformed."""
    try:
        body = json.loads(content)
        (choice,) = body["choices"]
        text, end, tokens = choice["message"]["content"], choice["finish_reason"], body["usage"]["completion_tokens"]
        ident = body["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{error!r}: {content[:200]!r}") from error
    if not isinstance(text, str) or end not in ENDS or not 0 < tokens <= TOKENS or not isinstance(ident, str):
        raise Malformed(f"{content[:500]!r}")
    return ident, text


def streamed_of(lines: Iterator[bytes]) -> str:
    """The text of a streamed completion: server-sent events up to [DONE], one of which has the finish reason. Raises
    Malformed; IncompleteRead if it breaks off."""
    text, ends = "", list[str]()
    for line in lines:
        if not line.strip() or line.startswith(b":"):
            continue
        if not line.startswith(b"data: "):
            raise Malformed(f"no event: {line[:200]!r}")
        if line.strip() == b"data: [DONE]":
            if len(ends) != 1 or ends[0] not in ENDS:
                raise Malformed(f"ends {ends} of {text!r}")
            return text
        try:
            event = json.loads(line[6:])
            if "error" in event:
                check_status(int(event["error"]["code"]))
            (choice,) = event["choices"]
            text += choice["delta"].get("content") or ""
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"{error!r}: {line[:200]!r}") from error
        ends += [choice["finish_reason"]] if choice.get("finish_reason") else []
    raise http.client.IncompleteRead(text.encode())
