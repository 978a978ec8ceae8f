"""Recognises follow-ups of the user: the answer was wrong, or is to be undone; and marks that were put on an answer.

Most phrases count only at the beginning of a message: `no, use pnpm` is a correction, `why is "no" printed` is not.
Quotes and code are taken out first, since they are not the user's own words. Polling (`is it done?`), going on (`also
add ...`), thanks and new topics say nothing.

The phrases stand in `data/signals.toml`, English first, then a few of German, French, Spanish and Chinese.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from apollod.core.facts.intake.events import Polarity
from apollod.curation.conversation import Moment, Signal, is_asked_again
from apollod.curation.signals.complaints import complains, error_pasted
from apollod.curation.signals.flag import Flag, answer_before, call_of, expressions, ids, is_answer, quoted
from apollod.curation.typed_ahead import is_mid_run

MID_RUN_STRENGTH = 0.9  # a correction typed while the agent still runs is seldom a misreading
LOOKED_AT = 400  # characters: people complain at the beginning
AFTER_NO = 24  # characters
LAST = 160  # characters: or at the end, behind what they pasted
ERRORS_IN = 4000  # characters that are searched for a pasted error


def _any(name: str, before: str = "", after: str = "") -> re.Pattern[str]:
    return re.compile(f"{before}(?:{'|'.join(expressions('follow_ups', name))}){after}")


_OF_OTHERS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>.*?$|\"[^\"\n]{0,400}\"|“[^”]*”|«[^»]*»|„[^“”]*[“”]|<(\w[\w-]*)>.*?</\1>"
    r"|^\s*(?:File \"|at |Traceback )[^\n]*$|^[\w ]+\(untrusted metadata\):$",
    re.DOTALL | re.MULTILINE,
)
_FILLERS = re.compile(rf"(?:\W|\b(?:{'|'.join(expressions('follow_ups', 'fillers'))})\b(?=\W|$))*")
_PRAISE = _any("praise", r"\b", r"\b")
_NEGATED = _any("negated", r"\b", r"\b")
_WRONG_AT_FIRST = _any("wrong_at_first")
_WRONG = _any("wrong")
_ACTUALLY = re.compile(
    r"(?:actually|eigentlich|en fait|en realidad)\b,? ?(?!can\b|could\b|would you|do you|also|never|let me)"
)
_INSTEAD = _any("instead", r"\b", r"\b")
_UNDO = _any("undo", rf"(?:(?:{'|'.join(expressions('follow_ups', 'asked'))})\b[ ,.!]*(?:please )?)*")
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


# Recognises marks in a log that people or evaluators put on an answer: ratings, the choice among several answers to
# one prompt, and refusals: an answer taken back, a tool call refused, a turn stopped.

SCORE = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?![\w.])")
GOOD_LABELS = frozenset({"pass", "passed", "good", "correct", "positive", "relevant", "true", "yes", "thumbs_up"})
BAD_LABELS = frozenset({"fail", "failed", "bad", "incorrect", "negative", "irrelevant", "false", "no", "thumbs_down"})


def ratings(moment: Moment) -> Iterable[Flag]:
    """Thumbs of people, and evaluations in a trace."""
    for place in range(moment.fresh, len(moment.messages)):
        said = moment.messages[place]
        for signal in said.signals:
            judged = _rating(signal) if signal.kind == "rating" else _evaluation(signal)
            if judged is not None:
                yield Flag(signal.kind, *judged, place, quoted(signal.value), ids(said))


def _rating(signal: Signal) -> tuple[Polarity, float] | None:
    """The polarity of a score; readers put the score first."""
    score = float(signal.value.split()[0])
    return ("good" if score > 0 else "bad"), 1.0


def _evaluation(signal: Signal) -> tuple[Polarity, float] | None:
    """(polarity, strength) by its label, else by a score from 0 to 1; other scales are unknown."""
    if signal.kind != "evaluation":
        return None
    words = {word.lower() for word in signal.value.split()[1:]}
    if words & GOOD_LABELS or words & BAD_LABELS:
        return ("good" if words & GOOD_LABELS else "bad"), 0.8
    scores = [float(score) for score in SCORE.findall(signal.value)]
    if len(scores) != 1 or not 0 <= scores[0] <= 1 or scores[0] == 0.5:
        return None
    return ("good" if scores[0] > 0.5 else "bad"), 0.8 * abs(2 * scores[0] - 1)


def rewound(moment: Moment) -> Iterable[Flag]:
    """Turns that were rolled back: the last answer of each."""
    if moment.taken_back != "rewound":
        return
    place, asked = -1, ""
    for n in range(moment.back_to, len(moment.messages) + 1):
        said = moment.messages[n] if n < len(moment.messages) else None
        if (said is None or said.prompt) and place >= 0:
            yield Flag("rewound", "bad", 0.7, place, quoted(asked), ids(moment.messages[place]))
            place = -1
        if said is not None and said.prompt:
            asked = said.message["content"]
        elif said is not None and is_answer(said.message):
            place = n


def refused(moment: Moment) -> Iterable[Flag]:
    """Calls that the user denied."""
    for n in range(moment.fresh, len(moment.messages)):
        said = moment.messages[n]
        signal = next((one for one in said.signals if one.kind == "refused"), None)
        if signal is not None and (call := call_of(moment, n)) is not None:
            yield Flag("refused", "bad", 0.5, call.place, quoted(signal.value), ids(moment.messages[call.place], said))


def interrupted(moment: Moment) -> Iterable[Flag]:
    """Answers that the user stopped, noted on the answer or behind it. Weak evidence: people change their minds."""
    for n in range(moment.fresh, len(moment.messages)):
        said = moment.messages[n]
        signal = next((one for one in said.signals if one.kind == "interrupted"), None)
        if signal is None:
            continue
        place = n if is_answer(said.message) else answer_before(moment, n)
        if place >= 0:
            yield Flag("interrupted", "bad", 0.3, place, quoted(signal.value), ids(moment.messages[place], said))


def swiped(moment: Moment) -> Iterable[Flag]:
    """The answer that was kept; the quote is from a rejected one."""
    for place in range(moment.fresh, len(moment.messages)):
        said = moment.messages[place]
        for signal in said.signals:
            if signal.kind == "swiped-away":
                yield Flag(signal.kind, "good", 0.5, place, quoted(signal.value), ids(said))


def regenerated(moment: Moment) -> Iterable[Flag]:
    """The answer to a question that was asked again at the same place, where another answer was kept. An edited prompt
    is another question, and says nothing about the earlier answer."""
    if moment.taken_back != "branch" or moment.then is None or moment.back_to >= len(moment.messages):
        return
    asked, again = moment.messages[moment.back_to], moment.then
    if not is_asked_again(asked, again):
        return
    place = answer_before(moment, len(moment.messages))
    if place > moment.back_to:
        yield Flag(
            "regenerated", "bad", 0.5, place, quoted(again.message["content"]), ids(moment.messages[place], again)
        )
