"""Pairs an answer that the user rejected with its replacement: a preference."""

import msgspec

from apollod.core.intake.evidence import speaks_against
from apollod.curation.conversation import Moment
from apollod.curation.moments import Rules, answer_key
from apollod.curation.signals.follow_ups import follow_ups


def instead_of(moment: Moment, place: int, rules: Rules) -> str:
    """Key of the answer that the prompt of the answer at `place` rejects; "" if it rejects none."""
    asked = next((n for n in range(place, -1, -1) if moment.messages[n].prompt), 0)
    before = msgspec.structs.replace(
        moment, messages=moment.messages[:asked], fresh=0, then=moment.messages[asked], taken_back=""
    )
    rejected = (flag.place for flag in follow_ups(before) if speaks_against(flag.polarity, flag.strength))
    return next((answer_key(moment, one, rules) for one in rejected), "")
