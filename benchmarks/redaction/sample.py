"""A labelled sample: secrets and harmless texts, in records like those of agents' logs."""

import json
from collections.abc import Callable, Iterator

from benchmarks.redaction.draw import LOWER, Draw, Sample
from benchmarks.redaction.harmless import HARMLESS
from benchmarks.redaction.settings import SETTINGS
from benchmarks.redaction.tokens import TOKENS, token_line

EACH = 12
"""samples of each kind in each half"""

Envelope = Callable[[str, Draw], str]


def _diff(text: str, draw: Draw) -> str:
    lines = "\n".join("+" + line for line in text.split("\n"))
    head = "diff --git a/app.conf b/app.conf\n--- a/app.conf\n+++ b/app.conf\n@@ -1,3 +1,4 @@"
    return f"{head}\n # settings\n{lines}\n-# old\n"


def _numbered(text: str, draw: Draw) -> str:
    return "\n".join(f"{n:6}\u2192{line}" for n, line in enumerate(f"# read\n{text}\n# end".split("\n"), 1))


def _logged(text: str, draw: Draw) -> str:
    stamp = f"2026-11-0{draw.number(1, 9)}T09:1{draw.number(0, 9)}:00.{draw.number(100, 999)}Z"
    return f"{stamp} INFO  worker-{draw.number(1, 9)} {text}\n{stamp} DEBUG done in {draw.number(1, 900)} ms"


def _traced(text: str, draw: Draw) -> str:
    head = f'Traceback (most recent call last):\n  File "app.py", line {draw.number(1, 900)}, in main'
    return f"{head}\n    {text}\nRuntimeError: refused"


def _chat(text: str, draw: Draw) -> str:
    return f"Here is what I have so far:\n\n{text}\n\nCan you say why the {draw.some(LOWER, 6)} job fails?"


def _result(text: str, draw: Draw) -> str:
    return f"$ cat {draw.some(LOWER, 5)}.txt\n{text}\n$ echo $?\n0\n"


def _fenced(text: str, draw: Draw) -> str:
    return f"I changed this:\n```\n{text}\n```\nand restarted it."


def _bare(text: str, draw: Draw) -> str:
    return text


def _nested(text: str, draw: Draw) -> str:
    """Arguments of a call: JSON in a string of JSON."""
    return json.dumps({"command": f"tool {draw.some(LOWER, 4)}", "stdin": text})


ENVELOPES: tuple[Envelope, ...] = (_bare, _diff, _numbered, _logged, _traced, _chat, _result, _fenced, _nested, _bare)


def line(text: str, draw: Draw) -> str:
    """A record of a log before redaction; non-ASCII characters as they are, or escaped."""
    content = draw.of(ENVELOPES)(text, draw)
    role = draw.rng.choice(("user", "assistant", "tool"))
    record = draw.of(
        (
            {"type": role, "message": {"role": role, "content": content}},
            {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "done"}]},
            {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": content}]}},
            {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c1", "output": content}},
        )
    )
    return json.dumps(record, ensure_ascii=draw.rng.random() < 0.5)


def sample(seed: int, half: int, each: int = EACH) -> Iterator[Sample]:
    """Texts with secrets and harmless ones, `each` of every kind; the same for the same seed and half."""
    draw = Draw(seed, half)
    for kind, token in TOKENS.items():
        for _ in range(each):
            text, secrets = token_line(draw, token)
            yield Sample(kind, line(text, draw), secrets)
    for kind, setting in SETTINGS.items():
        for _ in range(each):
            text, secrets = setting(draw)
            yield Sample(kind, line(text, draw), secrets)
    for kind, harmless in HARMLESS.items():
        for _ in range(each):
            yield Sample(kind, line(harmless(draw), draw))
