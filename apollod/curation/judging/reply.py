"""Parses a judge's answer into a vote, and builds the record of its better answer."""

from typing import Any

import msgspec

from apollod.core.judging.votes import Verdict, Vote
from apollod.curation.judging.question import Question
from apollod.curation.redaction import redact_text
from apollod.errors import RecordRefused, VerdictNonsense
from apollod.wire.records import Record, record_of

SHOWN = 60  # characters of an answer in a message
LENGTH_MAX = 20_000  # characters of a quote, a reason or a better answer


class _Reply(msgspec.Struct, forbid_unknown_fields=True):
    quote: str
    reason: str
    verdict: Verdict
    better: str | None = None


def vote_of(text: str, asked: Question) -> Vote:
    """The vote in an answer. Raises VerdictNonsense for prose, for JSON of another form, for a verdict without a quote
    from the judged text, and for an invalid better answer."""
    try:
        reply = msgspec.json.decode(text.encode(), type=_Reply)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        beginning = " ".join(redact_text(text)[:SHOWN].split())  # redact before cutting
        raise VerdictNonsense(f"this is no verdict ({error}): it begins with {beginning!r}") from error
    if max(len(reply.quote), len(reply.reason), len(reply.better or "")) > LENGTH_MAX:
        raise VerdictNonsense(f"a field of the verdict is longer than {LENGTH_MAX} characters")
    quote = _plain(reply.quote)
    if reply.verdict != "unsure" and not quote:
        raise VerdictNonsense(f"the verdict {reply.verdict!r} quotes nothing")
    if quote and quote not in _plain(asked.judged):
        raise VerdictNonsense(f"the quote {redact_text(quote)[:SHOWN]!r} is not in what was judged")
    better = reply.better if reply.verdict == "bad" and asked.last is not None else None
    if better is not None and not better.strip():
        raise VerdictNonsense("the better answer is empty")
    if better is not None and asked.last is not None and _plain(better) == _plain(asked.last):
        raise VerdictNonsense("the better answer is the one that is called bad")
    return Vote(reply.verdict, reply.quote, reply.reason, better)


def better_record(canonical: bytes, better: str) -> Record | None:
    """The record with a better answer in place of the last judged turn; only that answer is learned. None where a text
    cannot stand there."""
    form: dict[str, Any] = msgspec.json.decode(canonical)
    if "messages" in form:
        messages: list[dict[str, Any]] = form["messages"]
        judged = [n for n, one in enumerate(messages) if one["role"] == "assistant" and one.get("weight") != 0]
        if not judged or messages[judged[-1]].get("tool_calls"):
            return None
        before = [{**one, "weight": 0} if n in judged else one for n, one in enumerate(messages[: judged[-1]])]
        form = {**form, "messages": [*before, {"role": "assistant", "content": better}]}
    elif "completion" in form:
        form = {**form, "completion": better}
    else:
        return None
    try:
        return record_of(form)
    except RecordRefused:
        return None


def _plain(text: str) -> str:
    return " ".join(text.split())
