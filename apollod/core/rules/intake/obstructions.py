"""Records unreadable paths of sources: an event when a path becomes unreadable, when its reason changes and when it is
readable again."""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.inputs import Obstruction
from apollod.core.kernel.composing import composed
from apollod.core.kernel.outcome import Outcome
from apollod.core.state import State

BLOCKED_MAX = 64
"""most paths of one place that are named; one entry stands for the rest"""
PASSING_S = 60.0
"""seconds after which a temporary obstruction is reported: the writer of a database often locks it for a moment"""


def on_look(state: State, input_: inp.PlaceLooked, now_ns: int) -> Outcome:
    """Record the difference between the scan and the known unreadable paths. A path in two places is reported for the
    place that found it first."""
    known = state.intake.blocked
    own = {path for path, one in known.items() if (one.mode, one.place) == (input_.mode, input_.place)}
    blocked = _named(input_, own)
    events: list[ev.Event] = [
        composed(ev.SourceBlocked, input_, why, path=path)
        for path, why in sorted(blocked.items())
        if (path in own or path not in known) and _is_news(known[path].reason if path in own else "", why)
    ]
    if input_.complete:
        events += [ev.SourceUnblocked(path=path) for path in sorted(own - blocked.keys())]
    return Outcome(events, [])


def _named(input_: inp.PlaceLooked, own: set[str]) -> dict[str, Obstruction]:
    """Unreadable paths to report from this scan."""
    if not input_.complete:
        room = BLOCKED_MAX - 1 - len(own)
        fresh = set(sorted(input_.blocked.keys() - own)[: max(0, room)])
        return {path: why for path, why in input_.blocked.items() if path in own or path in fresh}
    if len(input_.blocked) < BLOCKED_MAX:
        return input_.blocked
    first = sorted(path for path in input_.blocked if path != input_.place)[: BLOCKED_MAX - 1]
    more = Obstruction(
        f"more than {len(first)} paths in it cannot be read", "see to those that are named, and the others follow"
    )
    return {path: input_.blocked[path] for path in first} | {input_.place: more}


def _is_news(reason: str, why: Obstruction) -> bool:
    return why.reason != reason and (why.passing_s is None or why.passing_s >= PASSING_S)
