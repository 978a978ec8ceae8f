"""Several answers in one place, of which one was kept."""

from collections.abc import Iterable

from apollod.curation.conversation import Moment
from apollod.curation.signals.flag import Flag, answer_before, ids, quoted


def swiped(moment: Moment) -> Iterable[Flag]:
    """The answer that was kept; the quote is of one that was not."""
    for place in range(moment.fresh, len(moment.messages)):
        said = moment.messages[place]
        for signal in said.signals:
            if signal.kind == "swiped-away":
                yield Flag(signal.kind, "good", 0.5, place, quoted(signal.value), ids(said))


def regenerated(moment: Moment) -> Iterable[Flag]:
    """The same question was asked again in the same place, and another answer was kept. An edited prompt is another
    question, and says nothing about the answer to the one before."""
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
