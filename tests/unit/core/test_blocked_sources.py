"""What cannot be read is a fact once, not at every look."""

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.fold import fold
from apollod.core.rules.intake.policy import BLOCKED_MAX, PASSING_S
from apollod.core.state import State
from apollod.wire.state_snapshot import dump_state, load_state

CLOSED = inp.Obstruction("it may not be read", "change its mode")
OTHER = inp.Obstruction("it is a link")


def look(state: State, blocked: dict[str, inp.Obstruction], complete: bool = True, place: str = "/logs") -> list[str]:
    """The facts of a look, folded; in short."""
    events = decide(state, inp.PlaceLooked("tail", place, blocked, complete), 5).events
    for event in events:
        fold(state, ev.Recorded(state.seq + 1, 7, event))
    assert all(event.key() == event.path for event in events)  # type: ignore[attr-defined]
    return [f"{event.kind.partition('.')[2]} {event.path}" for event in events]  # type: ignore[attr-defined]


def test_it_is_recorded_when_it_begins_when_its_reason_changes_and_when_it_ends() -> None:
    state = State()
    assert look(state, {"/logs/b": CLOSED, "/logs/a": CLOSED}) == ["blocked /logs/a", "blocked /logs/b"]
    assert look(state, {"/logs/b": CLOSED, "/logs/a": CLOSED}) == []
    known = state.intake.blocked["/logs/a"]
    assert (known.mode, known.place, known.reason, known.hint) == ("tail", "/logs", CLOSED.reason, CLOSED.hint)
    assert known.since_ns == 7
    assert look(state, {"/logs/b": CLOSED, "/logs/a": OTHER}) == ["blocked /logs/a"]
    assert look(state, {"/logs/a": OTHER}) == ["unblocked /logs/b"]
    assert state.intake.blocked.keys() == {"/logs/a"}


def test_a_look_that_is_not_over_says_nothing_about_the_rest() -> None:
    state = State()
    look(state, {"/logs/a": CLOSED})
    assert look(state, {"/logs/b": CLOSED}, complete=False) == ["blocked /logs/b"]
    assert state.intake.blocked.keys() == {"/logs/a", "/logs/b"}


def test_places_say_nothing_about_each_other() -> None:
    state = State()
    look(state, {"/logs/a": CLOSED})
    assert look(state, {}, place="/other") == []
    assert look(state, {"/logs/a": OTHER}, place="/logs/..") == [], "whoever found it first speaks of it"
    assert look(state, {}) == ["unblocked /logs/a"]


def test_a_lock_is_told_when_it_lasts() -> None:
    state = State()
    locked = inp.Obstruction("another program keeps it locked", passing_s=PASSING_S - 1)
    assert look(state, {"/logs/a": locked}) == []
    longer = inp.Obstruction(locked.reason, passing_s=PASSING_S)
    assert look(state, {"/logs/a": longer}) == ["blocked /logs/a"]
    assert look(state, {"/logs/a": locked}) == [], "still locked, as far as a daemon knows that was just started"
    assert look(state, {}) == ["unblocked /logs/a"]


def test_however_many_there_are_the_journal_names_some_and_says_that_there_are_more() -> None:
    state = State()
    many = {f"/logs/{n:06d}": CLOSED for n in range(BLOCKED_MAX + 50)}
    told = look(state, many)
    assert len(told) == BLOCKED_MAX and told[:2] == ["blocked /logs", "blocked /logs/000000"]
    assert look(state, many) == [] and str(BLOCKED_MAX - 1) in state.intake.blocked["/logs"].reason
    few = dict(list(many.items())[: BLOCKED_MAX - 1])
    assert look(state, few) == ["unblocked /logs"], "all of them are named"
    assert look(state, many, complete=False) == [], "there is no room; the end of the look says so"
    assert look(state, {}) == [f"unblocked {path}" for path in few]


def test_a_state_with_it_goes_through_a_snapshot() -> None:
    state = State()
    look(state, {"/logs/a": CLOSED})
    assert load_state(dump_state(state)).intake.blocked == state.intake.blocked != {}
