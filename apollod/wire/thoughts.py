"""Separates a model's thoughts from its answer. Pure.

Thoughts occur in three places: a field beside the text, where the server has a reasoning parser (vLLM calls it
`reasoning`, older versions `reasoning_content`); tags at the head of the text, where it has none; and a tag at the end
of the prompt (templates as Qwen3.5's and DeepSeek-R1's open the thought themselves), after which the text begins within
the thought.
"""

import re
from typing import NamedTuple

OPENED, CLOSED = "<think>", "</think>"
NO_THOUGHT = "\n</think>\n\n"
"""text of Qwen's templates after an opened thought if there is no thought"""


class Said(NamedTuple):
    """A text split into thought and answer. `unfinished`: it ends within the thought, so there is no answer."""

    thought: str
    answer: str
    unfinished: bool = False


def split(text: str, parsed: str = "", opened: bool = False) -> Said:
    """Thought and answer. `parsed`: the part that a reasoning parser cut from the text; `opened`: the prompt ends with
    an open thought. An answer that only mentions the tags stays whole."""
    if parsed:
        return Said(parsed.strip(), text.lstrip("\n"), not text.strip())
    begun = text.lstrip().removeprefix(OPENED) if text.lstrip().startswith(OPENED) else None
    thought, closed, answer = (text if begun is None else begun).partition(CLOSED)
    thinks = begun is not None or opened
    if closed and (thinks or OPENED not in thought):
        return Said(thought.strip(), answer.lstrip("\n"))
    return Said(text if begun is None else begun.strip(), "", True) if thinks else Said("", text)


def opens_thought(prompt: str) -> bool:
    """True if a prompt ends within a thought. A tag inside the text does not count."""
    return prompt.rstrip().endswith(OPENED)


def past_thought(prompt: str, written: str, thought: str = "") -> tuple[str, str]:
    """Move the given thought (default: an empty one) from the head of the written text to the end of the prompt, so
    that it is not learned: neither its text, nor that thoughts begin, nor that they end at once."""
    head = re.match(rf"\s*(?:<think>)?\s*{re.escape(thought.strip())}\s*</think>\n*", written)
    if head and (OPENED in head[0] or opens_thought(prompt)):
        return prompt + head[0], written[head.end() :]
    return prompt, written
