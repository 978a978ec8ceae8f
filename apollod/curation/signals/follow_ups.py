"""Recognises follow-ups of the user: the answer was wrong, or is to be undone.

Most phrases count only at the beginning of a message: `no, use pnpm` is a correction, `why is "no" printed` is not.
Quotes and code are taken out first, since they are not the user's own words. Polling (`is it done?`), going on (`also
add ...`), thanks and new topics say nothing.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from apollod.core.intake.events import Polarity
from apollod.curation.conversation import Moment
from apollod.curation.signals import phrases
from apollod.curation.signals.complaints import complains, error_pasted
from apollod.curation.signals.flag import Flag, answer_before, ids, quoted
from apollod.curation.typed_ahead import is_mid_run

MID_RUN_STRENGTH = 0.9  # a correction typed while the agent still runs is seldom a misreading
LOOKED_AT = 400  # characters: people complain at the beginning
AFTER_NO = 24  # characters
LAST = 160  # characters: or at the end, behind what they pasted
ERRORS_IN = 4000  # characters that are searched for a pasted error


def _any(pieces: Sequence[str], before: str = "", after: str = "") -> re.Pattern[str]:
    return re.compile(f"{before}(?:{'|'.join(pieces)}){after}")


_OF_OTHERS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>.*?$|\"[^\"\n]{0,400}\"|“[^”]*”|«[^»]*»|„[^“”]*[“”]|<(\w[\w-]*)>.*?</\1>"
    r"|^\s*(?:File \"|at |Traceback )[^\n]*$|^[\w ]+\(untrusted metadata\):$",
    re.DOTALL | re.MULTILINE,
)
_FILLERS = _any((r"\W", *(rf"\b{word}\b(?=\W|$)" for word in phrases.FILLERS)), after="*")
_PRAISE = _any(phrases.PRAISE, r"\b", r"\b")
_NEGATED = _any(phrases.NEGATED, r"\b", r"\b")
_WRONG_AT_FIRST = _any(phrases.WRONG_AT_FIRST)
_WRONG = _any(phrases.WRONG)
_ACTUALLY = re.compile(phrases.ACTUALLY)
_INSTEAD = _any(phrases.INSTEAD, r"\b", r"\b")
_UNDO = _any(phrases.UNDO, phrases.UNDO_ASKED)
_ASKED_BACK = re.compile(r"[?？]|clarif|prefer|let me know|aclar|préfér|precis")
_LISTED = re.compile(r"\s*1[.)\-:]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


class _Rejection(NamedTuple):
    kind: str
    polarity: Polarity
    strength: float


def follow_ups(moment: Moment) -> Iterable[Flag]:
    """The evidence in the next prompt about the last answer: `undo`, or else `correction`."""
    if moment.then is None or moment.taken_back:
        return
    place = answer_before(moment, len(moment.messages))
    if place < 0:
        return
    content = moment.then.message["content"]
    if (found := _rejection(content, str(moment.messages[place].message["content"]))) is None:
        return
    least = MID_RUN_STRENGTH if is_mid_run(moment.then) else 0.0
    shown_by = ids(moment.messages[place], moment.then)
    yield Flag(found.kind, found.polarity, max(found.strength, least), place, quoted(content), shown_by)


@lru_cache(maxsize=4)  # several callers ask about the same prompt
def _rejection(content: str, answer: str) -> _Rejection | None:
    """The rejection of an answer in the prompt after it; None if there is none."""
    own = own_words(content)
    if is_undo(own):
        return _Rejection("undo", "bad", 0.8)
    strength = correction(own) or _reported(content, own, answer)
    return _Rejection("correction", "correction", strength) if strength else None


def own_words(text: str) -> str:
    """The beginning of the user's own words, without quotes and leading fillers, in small letters."""
    own = _OF_OTHERS.sub(" ", text[: 4 * LOOKED_AT].replace("\u2019", "'")).strip().lower()
    return own[_FILLERS.match(own).end() :][:LOOKED_AT]  # type: ignore[union-attr]


def _reported(content: str, own: str, answer: str) -> float:
    """Strength of a reported problem: words anywhere in the message, even behind praise, or a pasted error."""
    if _LISTED.match(content) and _ASKED_BACK.search(answer, max(0, len(answer) - LOOKED_AT)):
        return 0.0  # a numbered reply to questions of the answer
    first, *rest = _SENTENCE_END.split(own, maxsplit=1)
    praised = _praised(first)
    last = own_words(content[-LAST:]) if len(content) > LOOKED_AT else ""
    if complains(" ".join(rest) if praised else own) or complains(last):
        return 0.6
    return 0.5 if not praised and error_pasted(content[:ERRORS_IN], answer) else 0.0


def is_undo(own: str) -> bool:
    """True if the user wants the last change undone."""
    return _UNDO.match(own) is not None


def correction(own: str) -> float:
    """Strength of a statement that the answer was wrong; 0 for none."""
    first = _SENTENCE_END.split(own, maxsplit=1)[0]
    if _praised(first):
        return 0.0
    if _WRONG_AT_FIRST.match(own):
        return 0.8
    actually = _ACTUALLY.match(own)
    if actually is not None and _INSTEAD.search(first, actually.end()) and not first.endswith("?"):
        return 0.6
    return 0.6 if _WRONG.search(own) else 0.0


def _praised(first: str) -> bool:
    """True if the first sentence says that the user is satisfied. Behind a `no,` only its beginning counts: `no, keep
    it, no need for more`."""
    said = first[:AFTER_NO] if first.startswith("no,") else first
    return _PRAISE.search(said) is not None and not _NEGATED.search(first)
