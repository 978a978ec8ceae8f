"""Recognises refusals by the user: an answer was taken back, a tool call refused, a turn stopped."""

from collections.abc import Iterable

from apollod.curation.conversation import Moment
from apollod.curation.signals.flag import Flag, answer_before, call_of, ids, is_answer, quoted


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
