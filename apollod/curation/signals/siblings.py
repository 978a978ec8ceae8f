"""Cues from several answers to the same prompt, one of which was kept."""

from collections.abc import Iterable

from apollod.curation.conversation import Moment
from apollod.curation.signals.flag import Flag, answer_before, ids, quoted


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
    if not asked.prompt or asked.message["content"].split() != again.message["content"].split():
        return
    place = answer_before(moment, len(moment.messages))
    if place > moment.back_to:
        yield Flag(
            "regenerated", "bad", 0.5, place, quoted(again.message["content"]), ids(moment.messages[place], again)
        )
