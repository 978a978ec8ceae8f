"""The table of cues, and the evidence that their flags are about answers that may be learned, each named by its key.

To add a family of cues, write a file beside this one and a line in `CUES`.
"""

from collections.abc import Callable
from functools import cache, partial

import msgspec

from apollod.core.facts.intake.events import BY_SCORE, Evidence, speaks_against
from apollod.curation.conversation import Moment, Remark
from apollod.curation.moments import Rules, answer_key, may_be_learned
from apollod.curation.signals.flag import Cue, Flag, answer_before, ids, quoted
from apollod.curation.signals.follow_ups import follow_ups, interrupted, ratings, refused, regenerated, rewound, swiped
from apollod.curation.signals.tool_results import tool_results

CUES: tuple[Cue, ...] = (ratings, swiped, regenerated, rewound, refused, interrupted, follow_ups, tool_results)
"""Strongest evidence first"""
OF_TURNS = frozenset({"undo", "correction", "rewound", "regenerated"})
"""Kinds of evidence about all answers to a prompt, not only the last"""
FOLLOWED_MAX = 2000  # characters of a prompt for a judge


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


def evidence_of(found: Moment | Remark, rules: Rules) -> tuple[Evidence, ...]:
    """Evidence in a moment, or in a remark on earlier moments, about answers that may be learned."""
    moment = found if isinstance(found, Moment) else _marked(found)
    if moment.session.sidechain and not rules.sidechains:
        return ()
    key_of = cache(partial(answer_key, moment, rules=rules))
    shown = []
    for flag in flags(moment):
        said = moment.messages[flag.place]
        if not may_be_learned(moment, said, rules):
            continue
        records = tuple(dict.fromkeys(one for one in (said.id, *flag.shown_by) if one))
        strength, key, session = round(flag.strength, 3), key_of(flag.place), moment.session.id
        turn = _turn(moment, flag.place, rules, key_of) if flag.kind in OF_TURNS else ()
        followed = _followed(moment, flag)
        shown.append(Evidence(flag.kind, flag.polarity, strength, key, session, records, flag.quote, followed, turn))
    return tuple(shown)


def _turn(moment: Moment, place: int, rules: Rules, key_of: Callable[[int], str]) -> tuple[str, ...]:
    """Keys of the answers before this one to the same prompt."""
    found = list[str]()
    while (place := answer_before(moment, place)) >= 0:
        if may_be_learned(moment, moment.messages[place], rules):
            found.append(key_of(place))
    return tuple(key for key in reversed(found) if key)


def unscored(found: Moment | Remark, rules: Rules) -> tuple[Evidence, ...]:
    """The user's next message after an answer without evidence against it, as evidence to use if the model finds that
    the message rejects the answer."""
    moment = found if isinstance(found, Moment) else found.about
    if moment.then is None or moment.taken_back or (moment.session.sidechain and not rules.sidechains):
        return ()
    place, text = answer_before(moment, len(moment.messages)), str(moment.then.message["content"])
    if place < 0 or not text.strip() or not may_be_learned(moment, moment.messages[place], rules):
        return ()
    if any(flag.place == place and speaks_against(flag.polarity, flag.strength) for flag in flags(moment)):
        return ()
    key, records = answer_key(moment, place, rules), ids(moment.messages[place], moment.then)
    quote, followed = quoted(text), text[:FOLLOWED_MAX]
    kept = followed if quote != text.strip() else ""
    return (Evidence(BY_SCORE, "correction", 0.0, key, moment.session.id, records, quote, kept),)


def _followed(moment: Moment, flag: Flag) -> str:
    """The whole prompt behind the answer, if the flag quotes its beginning."""
    text = str(moment.then.message["content"]) if moment.then is not None else ""
    return text[:FOLLOWED_MAX] if text and flag.quote == quoted(text) and flag.quote != text.strip() else ""


def _marked(remark: Remark) -> Moment:
    """The conversation with the mark on its last answer, and only that as fresh."""
    moment = remark.about
    if remark.marked is None:
        return moment
    place = max(n for n, said in enumerate(moment.messages) if said.message["role"] == "assistant")
    said = msgspec.structs.replace(moment.messages[place], signals=(remark.marked,))
    return msgspec.structs.replace(moment, messages=(*moment.messages[:place], said), fresh=place)


def instead_of(moment: Moment, place: int, rules: Rules) -> str:
    """Key of the answer that the prompt of the answer at `place` rejects; "" if it rejects none."""
    asked = next((n for n in range(place, -1, -1) if moment.messages[n].prompt), 0)
    before = msgspec.structs.replace(
        moment, messages=moment.messages[:asked], fresh=0, then=moment.messages[asked], taken_back=""
    )
    rejected = (flag.place for flag in follow_ups(before) if speaks_against(flag.polarity, flag.strength))
    return next((answer_key(moment, one, rules) for one in rejected), "")
