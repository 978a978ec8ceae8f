"""Recognises ratings by people or evaluators: thumbs, scores, labels."""

import re
from collections.abc import Iterable

from apollod.core.intake.events import Polarity
from apollod.curation.conversation import Moment, Signal
from apollod.curation.signals.flag import Flag, ids, quoted

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
