"""The states and kinds of lessons: the table of the core, the fold, the SQL view and the list say the same of random
lives, also where the journal goes on from an archive."""

from collections import Counter
from typing import get_args

from hypothesis import assume, example, given
from hypothesis import strategies as st
from property import test_dreams as dreaming
from property import test_lessons as teaching
from property.test_continuation import archived
from support import in_memory
from support.dreamt_journal import write_story
from support.effort import draws
from support.lives import stopped
from support.world import World

from apollod.adapters.journal.journal_reader import query
from apollod.core import events as ev
from apollod.core.continuation import obstacle
from apollod.core.facts.lessons.stages import RULES, LessonState, behaviour_after
from apollod.supervisor.lesson_view import lessons_view

Row = tuple[str, str, str, str]
"""id, kind, state, what was given as a statement or as an instruction"""
CHANGED = [
    ("retire", 0), ("add otherwise", 0), ("calls", 5), ("add", 0), ("retire", 0), ("add", 0), ("back", 2), ("calls", 1),
]  # fmt: skip
UNSETTLED = [("back", 5), ("settle", 0)]


def of_table(world: World) -> Counter[tuple[str, str]]:
    """Behaviours by name and state, by the events alone."""
    defined, states, out = dict[str, ev.PatternAdded](), dict[str, str](), Counter[tuple[str, str]]()
    for event in (recorded.event for recorded in world.journal):
        name = event.key() if event.kind.startswith("pattern.") else getattr(event, "pattern", "")
        if isinstance(event, ev.PatternAdded):
            if name in defined and defined[name].pattern != event.pattern:
                out[name, "replaced"] += 1
            defined[name], states[name] = event, RULES[event.kind].into
        elif isinstance(event, ev.PatternCarried):
            states[name] = event.state or states[name]
        elif event.kind in RULES:
            states[name] = behaviour_after(states[name], event.kind)  # type: ignore[arg-type]
    return out + Counter(states.items())


def of_view(world: World) -> Counter[Row]:
    with in_memory.directory() as directory:
        path = write_story(directory / "journal.db", list(world.journal))
        return Counter(query(path, "SELECT lesson, kind, state, coalesce(statement, '') FROM lessons").rows)


def of_list(world: World) -> Counter[Row]:
    rows = lessons_view(world.state, "", 0, world.now)["lessons"]
    given = {one.id: one.given.statement for one in world.state.lessons.lessons.values()}
    return Counter(
        (row["lesson"], row["kind"], row["state"], given.get(row["lesson"], row["question"])) for row in rows
    )


def agree(world: World) -> None:
    assert of_view(world) == of_list(world)
    behaviours = [(name, state) for name, kind, state, _ in of_list(world).elements() if kind == "behaviour"]
    assert Counter(behaviours) == of_table(world)


@draws(16, 1500)
@example("always", 40, CHANGED)
@example("always", 400, UNSETTLED)
@given(dreaming.MODE, st.integers(0, 30), dreaming.ACTIONS)
def test_behaviours_are_what_the_table_says_in_view_and_list(mode, calls, actions):
    agree(dreaming.play(mode, calls, actions))


@draws(12, 1000)
@example("always", 40, CHANGED)
@given(dreaming.MODE, st.integers(0, 30), dreaming.ACTIONS)
def test_behaviours_are_the_same_in_a_journal_that_goes_on_from_an_archive(mode, calls, actions):
    world = dreaming.play(mode, calls, [*actions, ("stop", 0)])
    assume(stopped(world) and not obstacle(world.state))
    later = archived(world)
    agree(later)
    assert of_list(later) == of_list(world)
    assert later.state.dreams.replaced == world.state.dreams.replaced
    assert [one.examples for one in later.state.dreams.courses.values()] == [
        one.examples for one in world.state.dreams.courses.values()
    ]


@draws(16, 1500)
@given(teaching.CALLS, st.lists(teaching.ACTION, max_size=30), teaching.SETTINGS)
def test_facts_are_what_the_fold_says_in_view_and_list(calls, actions, settings):
    agree(teaching.play(calls, actions, settings))


def test_lives_like_those_above_come_to_every_state():
    seen = {row[2] for n in range(len(CHANGED) + 1) for row in of_list(dreaming.play("always", 40, CHANGED[:n]))}
    seen |= {row[2] for row in of_list(dreaming.play("always", 400, UNSETTLED))}
    seen |= {row[2] for row in of_list(dreaming.play("off", 0, []))}
    assert seen == set(get_args(LessonState))
