"""The imagination and the judge of this world: scripted, correct, and on request as bad as a model can be; as an
OpenAI-compatible endpoint over real HTTP on this machine.

They get the same input over HTTP as any model, and no more: the imagination does not know the purpose of a scenario,
the judge not whether an answer was given with its instruction.
"""

import json
import random
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from apollod.curation.judge_question import PROMPT, question_about
from apollod.demo.world import instructions, reading, scenarios
from apollod.demo.world.instructions import Instruction
from apollod.demo.world.scenarios import Act, How, Scenario, Split
from apollod.supervisor.judge import planted_cases

Misbehaviour = Literal["repeat", "leak", "echo", "yes"]
"""repeat: the imagination has only one scenario; leak: it states the behaviour; echo: it returns its material; yes: the
judge accepts everything."""

JUDGED = ", to be judged"
SHOWN_TOO = "shown to the assistant, too"
_HEADING = re.compile(r"^--- (\w{8}) ", re.MULTILINE)

SCENARIO = "scenario"
"""Title or name of the JSON schema for answers of the imagination."""


class Acting:
    """`with Acting() as acting`: serves at `acting.url` until the end of the block.

    `imagined`, `judged`: requests answered so far.
    """

    def __init__(self, seed: int = 0, misbehave: Misbehaviour | None = None) -> None:
        self._imagination, self._judge = Imagination(seed, misbehave), Judge(misbehave)
        self._one_at_a_time = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.acting = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="acting")
        self.imagined = 0
        self.judged = 0

    @property
    def url(self) -> str:
        """Base URL, up to and including /v1."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Acting":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The assistant's answer to a chat completion, as an object; None if it is meant for neither imagination nor
        judge."""
        messages = body.get("messages") or [{}]
        asked = str(messages[-1].get("content"))
        form = (body.get("response_format") or {}).get("json_schema") or {}
        with self._one_at_a_time:
            if messages[0].get("content") == PROMPT:
                self.judged += 1
                return self._judge.answer(asked)
            if SCENARIO in (form.get("name"), (form.get("schema") or {}).get("title")):
                self.imagined += 1
                return self._imagination.answer(asked)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    acting: Acting


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(text)
        except ValueError:
            body = {}
        said = self.server.acting.answer(body) if self.path.endswith("/chat/completions") else None
        if said is None:
            self._send(400, {"error": {"message": "this is neither for the imagination nor for the judge"}})
            return
        content = json.dumps(said)
        words = sum(len(str(message.get("content")).split()) for message in body["messages"])
        self._send(200, {
            "id": "acted", "object": "chat.completion", "created": 0, "model": str(body.get("model")),
            "choices": [{
                "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content},
            }],
            "usage": {
                "prompt_tokens": words, "completion_tokens": len(content.split()),
                "total_tokens": words + len(content.split()),
            },
        })  # fmt: skip

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: it would go to stderr, in the middle of the progress."""


# --- the roles --------------------------------------------------------------------------------------------------------


def sections(text: str) -> list[tuple[str, str]]:
    """(heading, text) pairs of a request to judge or imagination; a text cannot imitate a heading, which needs the mark
    of the first one."""
    first = _HEADING.match(text)
    if first is None:
        return []
    parts = re.split(rf"^--- {first[1]} (.*)$", text, flags=re.MULTILINE)[1:]
    return [(heading, body.strip("\n")) for heading, body in zip(parts[::2], parts[1::2], strict=True)]


class Imagination:
    """Scenarios of the practice split, a new one every time, in an order determined by `seed`.

    Every behaviour has its own sequence, independent of the others. A task comes a second time, in other words, only
    after all others.
    """

    def __init__(self, seed: int = 0, misbehave: Misbehaviour | None = None) -> None:
        self._seed = seed
        self._misbehave = misbehave
        self._left: dict[str, Iterator[Scenario]] = {}

    def answer(self, asked: str) -> dict[str, Any]:
        """The answer, as an object, to the user message `asked`."""
        parts = sections(asked)
        behaviour = next((text for heading, text in parts if heading == "behaviour"), "")
        if self._misbehave == "echo" and (seed := next((text for head, text in parts if "material" in head), "")):
            return _said(seed)
        if self._misbehave == "repeat":
            return _said(scenarios.pool("act", Split.PRACTICE)[0].request)
        if behaviour not in self._left:
            self._left[behaviour] = _in_turn(random.Random(f"{self._seed} {behaviour}"), behaviour)
        request = next(self._left[behaviour]).request
        return _said(f"{request} {behaviour}" if self._misbehave == "leak" else request)


def _said(request: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": request}]}


def _in_turn(rng: random.Random, behaviour: str) -> Iterator[Scenario]:
    """All scenarios that can show the behaviour, without end; each task once before any comes again."""
    said = instructions.in_force(reading.said_in(behaviour) or ()).values()
    able = [
        one
        for kind in ("act", "how")
        for one in scenarios.pool(kind, Split.PRACTICE)
        if all(each.applies(one) for each in said)
    ]
    while True:
        yield from _spread(rng, able)


def _spread(rng: random.Random, able: Iterable[Scenario]) -> Iterator[Scenario]:
    by_task: dict[Any, list[Scenario]] = {}
    for one in able:
        assert isinstance(one, Act | How)
        by_task.setdefault(one.task, []).append(one)
    for phrasings in by_task.values():
        rng.shuffle(phrasings)
    while by_task:
        tasks = list(by_task)
        rng.shuffle(tasks)
        for task in tasks:
            yield by_task[task].pop()
            if not by_task[task]:
                del by_task[task]


class Judge:
    """Correct about this world and the shipped planted cases; unsure of everything else."""

    def __init__(self, misbehave: Misbehaviour | None = None) -> None:
        self._misbehave = misbehave

    def answer(self, transcript: str) -> dict[str, Any]:
        """The answer, as an object, to a transcript."""
        parts = sections(transcript)
        text = next((body for heading, body in reversed(parts) if heading.endswith(JUDGED)), "")
        if not text.strip():
            return _verdict("unsure", "", "nothing was said")
        if self._misbehave == "yes":
            return _verdict("good", text, "it is good")
        if expected := planted().get(transcript):
            return _verdict(expected, text, "so it was decided when the case was written")
        request = next((body for heading, body in reversed(parts) if heading == "user"), "")
        scenario = reading.scenario_of(request)
        system = [body for heading, body in parts if heading in ("system", SHOWN_TOO)]
        said = reading.said_in("\n".join(system), scenario)
        if scenario is None or said is None:
            return _verdict("unsure", text, "this world has no such request or no such instruction")
        if reading.is_right(said, scenario, text):
            return _verdict("good", text, "it is the right answer and does what was asked for")
        return _verdict("bad", text, "it does not do what was asked for", better(said, scenario, text))


def better(said: Sequence[Instruction], scenario: Scenario, text: str) -> str:
    """The right answer, with the other one's behaviours that no instruction is about."""
    about = {one.kind for one in said}
    shown = instructions.shown(scenario, text) or frozenset()
    return instructions.answer(scenario, [*sorted(one for one in shown if one.kind not in about), *said])


@cache
def planted() -> Mapping[str, str]:
    """The right verdicts by the transcripts of the cases."""
    cases = planted_cases(())
    return {question_about(case.canonical).messages[1]["content"]: case.planted.expected for case in cases}


def _verdict(said: str, text: str, reason: str, better: str | None = None) -> dict[str, Any]:
    return {"quote": " ".join(text.split()), "reason": reason, "verdict": said, "better": better}
