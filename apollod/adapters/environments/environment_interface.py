"""Interface of an environment of reinforcement learning, and the checks of what one replies."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from apollod.errors import EnvironmentFailed, RecordRefused
from apollod.wire.records import message_form
from apollod.wire.strict_json import half_a_pair, json_type

REPLY_BYTES_MAX = 1 << 20
WHY_MAX = 10_000  # characters of an error of an environment
SHOWN = 300  # characters of a reply or of an output that an error shows
ASKING = ("user", "tool")

Messages = list[dict[str, Any]]


class Score(NamedTuple):
    """Score of one answer; `value` None: it could not be scored, for the reason `why`."""

    value: float | None
    why: str


class Environment(Protocol):
    """A source of numbered prompts that scores answers to them."""

    async def prompt(self, number: int) -> Messages:
        """Return the chat messages of a prompt, in OpenAI's form; the last is a user's or a tool's turn.

        An environment has to give the same prompt for the same number at any time: after a crash the daemon asks
        again. Raises EnvironmentFailed.
        """
        ...

    async def score(self, number: int, messages: Sequence[dict[str, Any]], answers: Sequence[str]) -> list[Score]:
        """Return a score for each answer to the prompt with this number, in their order. Raises EnvironmentFailed where
        there is none for any of them."""
        ...

    async def close(self) -> None:
        """Let go of processes and connections. A later call opens them again."""
        ...


def score_of(value: Any) -> Score:
    """Read a score from JSON: any finite number, but not true or false."""
    if value is None:
        return Score(None, "the environment gave no score")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Score(None, f"the score is a JSON {json_type(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return Score(number, "") if math.isfinite(number) else Score(None, f"the score is {number}, no finite number")


def messages_of(prompt: Any, environment: str, number: int) -> Messages:
    """Check a prompt: a text, which is a user's turn, or chat messages. Raises EnvironmentFailed."""
    messages = [{"content": prompt, "role": "user"}] if isinstance(prompt, str) else prompt
    try:
        if not isinstance(messages, list) or not prompt:
            what = "it is empty" if isinstance(messages, list) else f"it is a JSON {json_type(messages)}"
            raise RecordRefused(what, "give a text or a list of {role, content} objects")
        forms = [message_form(message, f"message {place}") for place, message in enumerate(messages, 1)]
        if forms[-1]["role"] not in ASKING:
            what = f"its last turn has the role {forms[-1]['role']}"
            raise RecordRefused(what, "let it end with a turn of the user or of a tool")
        _refuse_half_pairs(messages)
    except RecordRefused as error:
        happened = f"gave a prompt {number} that cannot be asked: {error}"
        raise EnvironmentFailed(environment, happened, error.hint) from error
    return messages


def _refuse_half_pairs(messages: Messages) -> None:
    try:
        json.dumps(messages, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise half_a_pair() from error


def object_of(body: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else. NaN is taken, since Python's servers write it: `score_of` refuses
    only the score."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def shown(text: bytes) -> str:
    """The beginning of a text as one printable line."""
    line = " ".join(text[: 4 * SHOWN].decode(errors="replace").split())[:SHOWN]
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in line)
