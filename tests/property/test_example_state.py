"""What became of an example: the table of the core, the SQL view, the counts of the fold and `why` say the same."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.test_core_properties import ANY, EVERY, finish, play
from support import in_memory
from support.effort import draws
from support.journals import accepted, completed, write
from support.world import SETTINGS

from apollod.adapters.journal.journal_reader import query
from apollod.cli.control.examples.held_queue import HeldQueue, facts_since
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.example_state import KINDS, RULES, STATES, ExampleState, Rule, examples_of, rule_of, state_after
from apollod.wire.event_codec import encode_body

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1.0.db"
NAMES = ["a" * 32, "b" * 32, "c" * 32, "123456" + "0" * 26]


def states_of(events: list[tuple[str, dict]]) -> dict[str, ExampleState]:
    """By the table. Every event has to find its examples in a state that the table takes them out of."""
    states: dict[str, ExampleState] = {}
    for kind, body in events:
        rule = rule_of(kind, body)
        for id_ in examples_of(body) if rule else ():
            assert states.get(id_) in rule.out_of, (kind, id_, states.get(id_))
            states[id_] = state_after(states.get(id_), rule)
    return states


def of_view(path: Path) -> dict[str, str]:
    return dict(query(path, "SELECT id, state FROM examples").rows)


def of_why(path: Path, id_: str) -> dict:
    out = StringIO()
    with redirect_stdout(out):
        assert main(["ctl", "why", id_, "--json", "--file", str(path)]) == 0
    return json.loads(out.getvalue())["example"]


def held_of(path: Path) -> set[str]:
    """As `ctl review` reads it: all at once, and event by event with what changed each time."""
    at_once, step_by_step, waiting = HeldQueue(), HeldQueue(), set[str]()
    at_once.take(facts_since(str(path), 0))
    for fact in facts_since(str(path), 0):
        for change in step_by_step.take([fact]):
            (waiting.add if change.held else waiting.discard)(change.example)
    assert at_once.held == step_by_step.held and waiting == set(at_once.held)
    return waiting


RATED_AFTER_AN_EDIT = ["pause", *["praise"] * 3, "edit", *["blame"] * 5, "praise"]
"""An answer is rated good, edited, rated bad, and rated good again."""


class Story:
    """Any events that the table allows, as a daemon could write them: numbers choose what comes next."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.states: dict[str, ExampleState | None] = dict.fromkeys(NAMES)
        self.step = 0

    def add(self, rule: Rule, wanted: list[str]) -> None:
        """An event of this rule over those of the wanted that it can be about, if there are any."""
        able = tuple(id_ for id_ in dict.fromkeys(wanted) if self.states[id_] in rule.out_of)
        if rule.kind not in ("step.completed", "rollback.started", "example.withdrawn", "example.expired") and not (
            rule.kind == "step.failed" and rule.value
        ):
            able = able[:1]
        if not able:
            return
        event = self._event(rule, able)
        assert event.kind == rule.kind
        self.events.append(event)
        self.states |= dict.fromkeys(able, rule.into)

    def _event(self, rule: Rule, able: tuple[str, ...]) -> ev.Event:
        first, several = able[0], able if len(able) > 1 else ()
        match rule.kind:
            case "example.accepted":
                return accepted(first, len(self.events) + 1)
            case "example.rejected":
                return ev.ExampleRejected(example=first, reason="too long")
            case "example.looked":
                return ev.ExampleLooked(example=first, lesson="L1", known=rule.value, reason="it was looked at")
            case "example.withdrawn":
                return ev.ExampleWithdrawn(examples=able, by="t")
            case "example.held":
                return ev.ExampleHeld(example=first, tier="bulk", reason="its source is reviewed")
            case "example.approved":
                return ev.ExampleApproved(example=first, tier="bulk", by="t")
            case "example.declined":
                return ev.ExampleDeclined(example=first, tier="bulk", by="t")
            case "example.edited":
                return ev.ExampleEdited(example=first, tier="bulk", into="f" * 32, by="t")
            case "example.expired":
                return ev.ExampleExpired(examples=able, days=30.0)
            case "example.requeued":
                return ev.ExampleRequeued(example=first, tier="bulk", by="t")
            case "rollback.started":
                return ev.RollbackStarted(
                    to=0, from_step=self.step, fingerprint="f", origin="", replay=(), undone=(self.step,), examples=able
                )
        self.step += 1
        if rule.kind == "step.failed":
            examples = able if rule.value else ()
            return ev.StepFailed(
                step=self.step, example=first, reason="no", attempts=1, examples=examples, apart=rule.value
            )
        _, done = completed(self.step, self.step - 1, first, 1.5 if rule.value else None)
        return msgspec.structs.replace(done, examples=several)


MOVES = st.lists(st.tuples(st.sampled_from(RULES), st.permutations(NAMES), st.integers(1, len(NAMES))), max_size=40)


@draws(25, 60)
@given(st.sets(st.sampled_from(NAMES), min_size=1), MOVES)
def test_the_view_and_why_say_what_the_table_says_of_every_sequence_of_events(first, moves):
    story = Story()
    for id_ in sorted(first):
        story.add(RULES[0], [id_])
    for rule, order, number in moves:
        story.add(rule, list(order)[:number])
    by_table = {id_: state for id_, state in story.states.items() if state is not None}
    with in_memory.directory() as directory:
        path = write(directory / "journal.db", story.events)
        assert of_view(path) == by_table == states_of(bodies(story.events))
        assert held_of(path) == {id_ for id_, state in by_table.items() if state == "held"}
        for id_, state in by_table.items():
            told = of_why(path, id_)
            assert told["state"] == state
            ((step,),) = query(path, f"SELECT step FROM examples WHERE id = '{id_}'").rows
            assert told["step"] == step


def bodies(events: list[ev.Event]) -> list[tuple[str, dict]]:
    return [(event.kind, json.loads(encode_body(event))) for event in events]


@draws(150, 300)
@example(RATED_AFTER_AN_EDIT, SETTINGS, False)
@given(st.lists(ANY, max_size=50), EVERY, st.booleans())
def test_the_core_moves_examples_as_the_table_allows_and_counts_what_it_says(actions, training, keeps_steps):
    world = finish(play(actions, training, keeps_steps))
    states = states_of(bodies([item.event for item in world.journal])).values()
    count = {state: list(states).count(state) for state in STATES}
    steps, intake = world.state.training.counts, world.state.intake
    assert (steps.trained, steps.skipped) == (count["trained"], count["skipped"])
    held, decided = world.state.review.held, world.state.review.counts
    assert len(held) == count["held"]
    assert (decided.declined, decided.edited, decided.expired) == tuple(
        count[how] for how in ("declined", "edited", "expired")
    )
    dismissed = [one.how for one in world.state.review.dismissed.values()]
    assert all(dismissed.count(how) == count[how] for how in ("declined", "edited", "expired"))
    assert (world.state.queued, len(intake.undone)) == (count["pending"], count["undone"])
    assert len(intake.withdrawn) == count["withdrawn"]
    assert intake.counts.accepted == len(states)
    assert intake.counts.rejected == count["rejected"] + len(world.of(ev.SourceQuarantined))


def test_a_released_journal_holds_no_other_sequences():
    rows = query(GOLDEN, "SELECT kind, body FROM events ORDER BY seq", row_limit=100_000).rows
    by_table = states_of([(kind, json.loads(body)) for kind, body in rows])
    assert by_table == of_view(GOLDEN) and by_table


def test_kinds_and_fields_of_the_table_are_those_of_events():
    for rule in RULES:
        fields = {field.name: field for field in msgspec.structs.fields(ev.KINDS[rule.kind])}
        assert not rule.field or fields[rule.field].type is bool
        assert "example" in fields or "examples" in fields
    assert len(KINDS) == 13 and {rule.into for rule in RULES} == set(STATES)


@pytest.mark.parametrize(
    ("body", "state"), [({}, "trained"), ({"applied": False}, "skipped"), ({"applied": True}, "trained")]
)
def test_an_old_event_without_the_field_is_what_the_first_rule_says(body, state):
    rule = rule_of("step.completed", body)
    assert rule is not None and rule.into == state


def test_what_comes_out_of_order_changes_nothing():
    rule = rule_of("example.requeued", {})
    assert rule is not None and state_after("rejected", rule) == "rejected" and state_after(None, rule) is None
    assert rule_of("dream.requested", {}) is None
