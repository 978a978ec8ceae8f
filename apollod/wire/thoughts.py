"""Separates a model's thoughts from its answer. Pure.

Three places have thoughts: a field beside the text, where the server has a reasoning parser (vLLM calls it `reasoning`,
older versions `reasoning_content`); tags at the head of the text, where it has none; and a tag at the end of the prompt
(templates as Qwen3.5's and DeepSeek-R1's open the thought themselves), after which the text begins within the thought.
"""

import re
from typing import NamedTuple

OPENED, CLOSED = "<think>", "</think>"
NO_THOUGHT = "\n</think>\n\n"
"""what Qwen's templates put after an opened thought where there is none"""


class Said(NamedTuple):
    """A text split into thought and answer. `unfinished`: it ends within the thought, so there is no answer."""

    thought: str
    answer: str
    unfinished: bool = False


def split(text: str, parsed: str = "", opened: bool = False) -> Said:
    """Thought and answer. `parsed`: what a reasoning parser cut from the text; `opened`: the prompt ends with an open
    thought. An answer that only speaks of the tags stays whole."""
    if parsed:
        return Said(parsed.strip(), text.lstrip("\n"), not text.strip())
    begun = text.lstrip().removeprefix(OPENED) if text.lstrip().startswith(OPENED) else None
    thought, closed, answer = (text if begun is None else begun).partition(CLOSED)
    thinks = begun is not None or opened
    if closed and (thinks or OPENED not in thought):
        return Said(thought.strip(), answer.lstrip("\n"))
    return Said(text if begun is None else begun.strip(), "", True) if thinks else Said("", text)


def opens_thought(prompt: str) -> bool:
    """True if a prompt ends within a thought. A tag that stands in what was said is no end of it."""
    return prompt.rstrip().endswith(OPENED)


def past_thought(prompt: str, written: str, thought: str = "") -> tuple[str, str]:
    """Prompt and what is written after it, with the thought (an empty one) at the end of the prompt instead of at the
    head of the answer: what is there is not learned, nor that thoughts begin, nor that they are over at once."""
    head = re.match(rf"\s*(?:<think>)?\s*{re.escape(thought.strip())}\s*</think>\n*", written)
    if head and (OPENED in head[0] or opens_thought(prompt)):
        return prompt + head[0], written[head.end() :]
    return prompt, written
