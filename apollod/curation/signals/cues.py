"""The table of cues. To add a family, write a file beside this one and a line in it."""

from apollod.curation.conversation import Moment
from apollod.curation.signals.flag import Cue, Flag
from apollod.curation.signals.follow_ups import follow_ups
from apollod.curation.signals.ratings import ratings
from apollod.curation.signals.refusals import interrupted, refused, rewound
from apollod.curation.signals.siblings import regenerated, swiped
from apollod.curation.signals.tool_results import tool_results

CUES: tuple[Cue, ...] = (ratings, swiped, regenerated, rewound, refused, interrupted, follow_ups, tool_results)
"""Strongest evidence first"""


def flags(moment: Moment) -> tuple[Flag, ...]:
    """All flags of a moment. An answer gets one flag per kind and polarity: the strongest, with the records of all."""
    found: dict[tuple[int, str, str], Flag] = {}
    for cue in CUES:
        for flag in cue(moment):
            key = flag.place, flag.kind, flag.polarity
            known = found.get(key)
            if known is not None:
                shown_by = tuple(dict.fromkeys((*known.shown_by, *flag.shown_by)))
                flag = max(known, flag, key=lambda one: one.strength)._replace(shown_by=shown_by)
            found[key] = flag
    return tuple(found.values())
