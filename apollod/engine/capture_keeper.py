"""The thread that stores finished answers: converts tokens to text, redacts secrets from both.

Requests only put into a queue. Errors here are logged once and cost captures, never an answer.
"""

import copy
import logging
import re
import sqlite3
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from apollod.adapters.answer_store import Answer, AnswerWriter
from apollod.curation.redaction import redact, use
from apollod.engine.capture import Finished
from apollod.wire.engine_terms import CaptureTerms

logger = logging.getLogger("vllm.apollod")

WAITING_MAX = 1024  # answers in the queue; more would come only while the disk or the processor is stalled
_PLACEHOLDER = re.compile(r"\[redacted [^\]\[]{1,64}\]")


class Tokenizer:
    """A tokenizer of its own: vLLM's may not be used by two threads at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)

    def text(self, ids: Sequence[int], told: bool = False) -> str:
        """The text of tokens; `told`: as the client gets it, without tokens such as the end of a turn."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=told))

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


class Keeper:
    """Takes answers from any thread and stores them."""

    def __init__(self, terms: CaptureTerms, tokenizer: Tokenizer, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._terms = terms
        self._tokenizer = tokenizer
        self._now_ns = now_ns
        self._waiting: deque[Finished] = deque()
        self._more = threading.Condition()
        self._busy = False
        self._closed = False
        self._failed = ""
        self._thread = threading.Thread(target=self._run, name="apollod-capture", daemon=True)
        self._thread.start()

    def keep(self, finished: Finished) -> None:
        """Queue an answer; does not wait."""
        with self._more:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(finished)
            self._more.notify_all()

    def settle(self, timeout_s: float) -> None:
        """Wait until everything given so far is stored, at most `timeout_s`. Blocks."""
        with self._more:
            self._more.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self) -> None:
        """Store the queued answers, and end."""
        with self._more:
            self._closed = True
            self._more.notify_all()
        self._thread.join(5.0)

    def _run(self) -> None:
        writer: AnswerWriter | None = None
        while True:
            with self._more:
                self._busy = False
                self._more.notify_all()
                self._more.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    break
                self._busy = True
                taken, self._waiting = list(self._waiting), deque()
            try:
                writer = writer or AnswerWriter(Path(self._terms.path), self._terms.max_bytes, self._terms.keep_s)
                answers = [answer for one in taken if (answer := readable(one, self._tokenizer)) is not None]
                writer.put(answers, self._now_ns())
            except Exception as error:  # noqa: BLE001 - whatever a disk or tokenizer raises: the next answers are tried again
                self._say(error)
                if writer is not None and isinstance(error, sqlite3.Error):
                    writer.close()
                    writer = None
        if writer is not None:
            writer.close()

    def _say(self, error: Exception) -> None:
        """Log an error once, as long as it stays the same."""
        if self._failed != str(error):
            self._failed = str(error)
            logger.warning("answers are not kept in %s: %s", self._terms.path, error)


def started(terms: CaptureTerms, client: Any) -> Keeper | None:
    """A keeper with the tokenizer of vLLM's engine client; None, with a warning, if there is no usable one: serving has
    priority."""
    try:
        use(terms.personal)
        return Keeper(terms, Tokenizer(client.get_tokenizer()))
    except Exception:
        logger.warning("answers are not kept: there is no tokenizer for it", exc_info=True)
        return None


def readable(one: Finished, tokenizer: Tokenizer) -> Answer | None:
    """The answer with its texts, without secrets; None if they cannot be removed from its tokens."""
    prompt, answer = clean(one.prompt_ids, tokenizer), clean(one.answer_ids, tokenizer)
    if prompt is None or answer is None:
        return None
    (prompt_ids, prompt_text, one_found), (answer_ids, _, other_found) = prompt, answer
    told = tokenizer.text(answer_ids, told=True)
    if without_secrets(told) != told:
        return None
    return Answer(
        one.response, one.choice, one.at_ns, one.version, one.finish, one.final, prompt_ids, answer_ids, prompt_text,
        told, one_found or other_found,
    )  # fmt: skip


def clean(ids: "array[int]", tokenizer: Tokenizer) -> "tuple[array[int], str, bool] | None":
    """(tokens, their text, true if secrets were in it), with placeholders for secrets in both.

    Tokens that contain part of a secret are replaced by those of its placeholder and of the rest of their text; all
    others stay.
    """
    text = tokenizer.text(ids)
    redacted = without_secrets(text)
    if redacted == text:
        return ids, text, False
    pieces, at = array("I"), 0
    for start, end, placeholder in replaced(text, redacted):
        first, begins = _before(ids, start, tokenizer)
        behind, ends = _behind(ids, end, tokenizer)
        if first < at:  # two secrets in one token
            return None
        pieces.extend(ids[at:first])
        pieces.extend(tokenizer.ids(text[begins:start] + placeholder + text[end:ends]))
        at = behind
    pieces.extend(ids[at:])
    return (pieces, redacted, True) if tokenizer.text(pieces) == redacted else None


def without_secrets(text: str) -> str:
    """The text redacted as in a log, which is JSON."""
    return str(msgspec.json.decode(redact(msgspec.json.encode(text))[0]))


def replaced(text: str, redacted: str) -> list[tuple[int, int, str]]:
    """The spans of `text` that the placeholders of `redacted` replace: characters [start, end), and the placeholder."""
    found, at, read = [], 0, 0
    for match in _PLACEHOLDER.finditer(redacted):
        start = at + match.start() - read
        following = _PLACEHOLDER.search(redacted, match.end())
        literal = redacted[match.end() : following.start() if following else len(redacted)]
        if literal and not following:
            end = len(text) - len(literal)
        else:
            end = text.find(literal, start + 1) if literal else len(text)
        found.append((start, end, match[0]))
        at, read = end, match.end()
    return found


def _before(ids: "array[int]", place: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The number of tokens that end at or before a character, and their length in characters."""
    count = bisect_right(range(len(ids) + 1), place, key=lambda n: len(tokenizer.text(ids[:n]))) - 1
    return count, len(tokenizer.text(ids[:count]))


def _behind(ids: "array[int]", place: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The number of tokens that reach at least up to a character, and their length in characters."""
    count = bisect_left(range(len(ids) + 1), place, key=lambda n: len(tokenizer.text(ids[:n])))
    return count, len(tokenizer.text(ids[:count]))
