"""An example that holds a probe of the quality guard is not learned before a person said so, whatever way it came."""

import msgspec
import pytest
from support.dreaming_world import DreamingWorld
from support.judged_world import JudgedWorld
from support.world import World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.judging.events import Vote
from apollod.core.fold import fold
from apollod.core.state import State

LEAK = "the words of the probe ferry (mine.jsonl:1)"
RECORD = b'{"text":"The ferry left."}'


def line(name: str, number: int = 1, leak: str = LEAK) -> inp.Line:
    return inp.Line(number=number, example=name, record=RECORD, leak=leak)


def batch(*lines: inp.Line, **terms: object) -> inp.LinesRead:
    read = inp.Batch(source="s", path="/in/a.jsonl", offset=9, line=len(lines), lines=lines)
    return inp.LinesRead(msgspec.structs.replace(read, **terms), frozenset())


def learned(world: World) -> list[str]:
    world.settle()
    return [e.example for e in world.of(ev.StepCompleted)]


@pytest.mark.parametrize("kind", [World, JudgedWorld])
@pytest.mark.parametrize("terms", [{}, {"hold": 1.0}, {"tier": "direct", "tracked": False}])
def test_a_line_with_a_probe_waits_for_a_person_who_is_told_which(kind: type[World], terms: dict[str, object]) -> None:
    world = kind().up()
    events = world.give(batch(line("a"), line("b", 2, leak=""), **terms))
    held = [e for e in events if isinstance(e, ev.ExampleHeld) and e.example == "a"]
    assert len(held) == 1 and held[0].waits_for == "person" and LEAK in held[0].reason
    assert "a" in world.state.review.held and "a" not in learned(world)
    world.give(inp.DecisionsGiven((inp.Decision("a", "approve"),), "p"))
    assert "a" in learned(world)


def test_others_of_its_batch_are_learned_as_ever() -> None:
    world = World().up()
    world.give(batch(line("a"), line("b", 2, leak="")))
    assert learned(world) == ["b"]


def test_what_a_person_writes_instead_is_refused() -> None:
    world = World().up()
    world.lines("a", hold=1.0)
    assert world.give(inp.EditGiven("a", line("w"), "p")) == []
    assert list(world.state.review.held) == ["a"]


def test_what_the_judge_writes_instead_waits_for_a_person_and_not_for_the_judge() -> None:
    world = JudgedWorld().up()
    world.lines("a")
    asked = world._take("a")
    judged = inp.Judged((Vote("bad", "q", "r", "better"),) * 3, 7, 10, 5)
    events = world.give(inp.JudgeAnswered(asked.subject, asked.attempt, judged, line("a2")))
    (held,) = [e for e in events if isinstance(e, ev.ExampleHeld)]
    assert (held.example, held.waits_for) == ("a2", "person") and LEAK in held.reason
    assert "a2" not in world.state.judging.waiting


def test_a_dream_of_a_probe_is_given_up() -> None:
    world = DreamingWorld().up()
    while not isinstance(world.calls[0], fx.JudgeDream):
        world.call()
    reply = world.reply(world.calls[0])
    events = world.give(msgspec.structs.replace(reply, line=line("dreamt")))
    assert [e.kind for e in events] == ["dream.judged", "dream.abandoned"]
    assert isinstance(events[1], ev.DreamAbandoned) and LEAK in events[1].reason


def test_a_rating_holds_a_probe_back_and_approves_none() -> None:
    state, rated = State(), inp.Rated("r", "good", "http", answer="said", line=line("g"))
    state.children.trainer.phase = "ready"
    outcome = decide(state, rated, 0)
    assert [e.kind for e in outcome.events] == ["example.accepted", "example.held", "feedback.given"]
    assert outcome.effects == []
    for event in outcome.events:
        fold(state, ev.Recorded(state.seq + 1, 0, event))
    given = outcome.events[2]
    assert isinstance(given, ev.FeedbackGiven)
    again = msgspec.structs.replace(rated, comment="really", previous=given, previous_seq=3, known=True)
    assert [e.kind for e in decide(state, again, 0).events] == ["feedback.given"]
