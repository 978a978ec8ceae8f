"""Recognises marks in a log that people or evaluators put on an answer: ratings, the choice among several answers to
one prompt, and refusals: an answer taken back, a tool call refused, a turn stopped.
"""

import re
from collections.abc import Iterable

from apollod.core.facts.intake.events import Polarity
from apollod.curation.conversation import Moment, Signal, is_asked_again
from apollod.curation.signals.flag import Flag, answer_before, call_of, ids, is_answer, quoted

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
