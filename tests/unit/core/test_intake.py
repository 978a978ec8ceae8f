"""What lines become."""

import json
from base64 import b64encode
from hashlib import blake2b

import msgspec
from support.world import World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.events import Evidence
from apollod.core.facts.intake.repeats import BINS, SCHEME
from apollod.core.facts.intake.state import Position
from apollod.core.fold import fold
from apollod.core.inputs import Batch, Line, Response
from apollod.core.rules.intake.policy import WITHDRAWN_MAX, intake_events
from apollod.core.state import State


def record(number: int, name: str) -> Line:
    return Line(number=number, example=name, record=b'{"text":"%s"}' % name.encode())


BAD = Line(number=2, reason="the line is not JSON", bytes=4, sha256="ab", kept="/q/ab")


def batch(*lines: Line, **changes: object) -> Batch:
    made = Batch(
        source="s1", path="/in/a.jsonl", offset=90, line=max((x.number for x in lines), default=0), lines=lines
    )
    return msgspec.structs.replace(made, **changes)


def test_a_new_source_is_discovered_first_and_its_position_comes_last() -> None:
    events = intake_events(batch(record(1, "a"), new=True, replaces="s0"), set())
    assert events == [
        ev.SourceDiscovered(source="s1", path="/in/a.jsonl", replaces="s0"),
        ev.ExampleAccepted(example="a", record=msgspec.Raw(b'{"text":"a"}'), source="s1", line=1),
        ev.SourceConsumed(source="s1", path="/in/a.jsonl", offset=90, line=1, accepted=1, duplicates=0, rejected=0),
    ]


def test_each_line_becomes_one_fact_in_order() -> None:
    events = intake_events(batch(record(1, "a"), BAD, record(3, "old"), record(4, "b")), {"old"})
    assert [e.kind for e in events] == [
        "example.accepted",
        "source.quarantined",
        "example.duplicate",
        "example.accepted",
        "source.consumed",
    ]
    assert events[1] == ev.SourceQuarantined(
        source="s1", path="/in/a.jsonl", line=2, reason="the line is not JSON", bytes=4, sha256="ab", kept="/q/ab"
    )
    consumed = events[-1]
    assert isinstance(consumed, ev.SourceConsumed)
    assert (consumed.accepted, consumed.duplicates, consumed.rejected) == (2, 1, 1)


def test_blank_lines_still_move_the_position() -> None:
    assert [e.kind for e in intake_events(batch(line=3), set())] == ["source.consumed"]


def test_the_position_says_what_is_before_it() -> None:
    (event,) = intake_events(batch(line=3, tail="ab"), set())
    assert isinstance(event, ev.SourceConsumed) and event.tail == "ab"
    assert fold(State(), ev.Recorded(1, 0, event)).intake.sources == {"s1": Position("s1", 90, 3, "ab")}


def test_lines_from_a_socket_have_no_position() -> None:
    events = intake_events(batch(record(1, "a"), source="ctl:x.jsonl", path="", tracked=False), set())
    assert [e.kind for e in events] == ["example.accepted"]


def test_an_example_has_the_tier_of_its_way_here_unless_its_line_asks_for_another() -> None:
    asked = msgspec.structs.replace(record(2, "b"), tier="dream")
    for tier in ("bulk", "direct"):
        events = intake_events(batch(record(1, "a"), asked, tier=tier), set())
        assert [e.tier for e in events if isinstance(e, ev.ExampleAccepted)] == [tier, "dream"]


def test_an_example_that_is_known_in_another_tier_is_a_duplicate() -> None:
    events = intake_events(batch(msgspec.structs.replace(record(1, "a"), tier="direct")), {"a"})
    assert [e.kind for e in events] == ["example.duplicate", "source.consumed"]


def test_the_given_set_is_not_changed() -> None:
    known = {"old"}
    intake_events(batch(record(1, "a")), known)
    assert known == {"old"}


def test_what_waits_is_withdrawn_and_what_is_being_learned_is_not() -> None:
    world = World().up()
    world.lines("a", "b", "c", "d")
    world.answer()  # tokens; then the first step begins
    assert world.state.training.running is not None and world.state.training.running.examples == ("a",)
    world.give(inp.ExampleWithdrawn(("a", "b", "d", "e"), "ctl"))
    assert world.of(ev.ExampleWithdrawn) == [ev.ExampleWithdrawn(examples=("b", "d"), by="ctl")]
    assert world.state.queued == 2 and list(world.state.intake.withdrawn) == ["b", "d"]
    world.settle()
    assert [done.example for done in world.of(ev.StepCompleted)] == ["a", "c"]
    world.give(inp.RelearnRequested((("d", "bulk"), ("c", "bulk")), "ctl"))
    world.settle()
    assert [done.example for done in world.of(ev.StepCompleted)] == ["a", "c", "d"]
    assert list(world.state.intake.withdrawn) == ["b"]


def test_what_is_being_tokenised_is_withdrawn_and_the_others_are_learned() -> None:
    world = World().up()
    world.lines("a", "b", "c")
    assert world.state.training.running is None
    world.give(inp.ExampleWithdrawn(("b",), "ctl"))
    world.lines("d")
    world.answer()
    assert [e.example for e in world.of(ev.ExampleEncoded)] == ["a", "c"], "the answer counts for those that still wait"
    world.settle()
    assert [done.example for done in world.of(ev.StepCompleted)] == ["a", "c", "d"]
    assert [e.example for e in world.of(ev.ExampleEncoded)] == ["a", "c", "d"] and world.state.queued == 0


def test_a_long_queue_is_withdrawn_in_events_of_bounded_length() -> None:
    world = World()
    world.start()
    world.lines(*(f"e{number}" for number in range(WITHDRAWN_MAX + 1)))
    world.give(inp.ExampleWithdrawn(tuple(one.example for one in world.state.intake.untokenised), "ctl"))
    assert [len(e.examples) for e in world.of(ev.ExampleWithdrawn)] == [WITHDRAWN_MAX, 1]
    assert not world.state.intake.pending and not list(world.state.intake.untokenised)


def lesson(number: int, name: str, *keys: str, signature: str = "") -> Line:
    """A record of turns that teaches these answers."""
    record, responses = b'{"messages":[', list[Response]()
    for key in keys:
        record += b'{"content":"%s","role":"assistant"},' % key.encode()
        responses.append(Response(key, len(record) - 2))
    made = record[:-1] + b"]}"
    return Line(number=number, example=name, record=made, responses=tuple(responses), signature=signature)


def signed(*numbers: int) -> str:
    """A signature whose bytes are zero but for these."""
    return SCHEME + b64encode(bytes(n if n in numbers else 0 for n in range(BINS))).decode()


def test_an_example_whose_answers_are_all_known_is_a_duplicate_that_names_the_first() -> None:
    lines = lesson(1, "a", "k1", "k2"), lesson(2, "b", "k2", "k1"), lesson(3, "c", "k0")
    first, second, third, consumed = intake_events(batch(*lines), set(), {"k0": ""})
    assert isinstance(first, ev.ExampleAccepted) and first.responses == ("k1", "k2") and first.repeated == ()
    assert second == ev.ExampleDuplicate(example="b", source="s1", line=2, of="a")
    assert third == ev.ExampleDuplicate(example="c", source="s1", line=3), "that of an archive has no name"
    assert isinstance(consumed, ev.SourceConsumed) and (consumed.accepted, consumed.duplicates) == (1, 2)


def test_answers_that_are_known_are_context_and_the_example_has_the_id_of_what_is_left() -> None:
    accepted, again, _ = intake_events(
        batch(lesson(1, "a", "k1", "k2"), lesson(2, "a", "k1", "k2")), set(), {"k1": "x"}
    )
    assert isinstance(accepted, ev.ExampleAccepted)
    assert json.loads(bytes(accepted.record))["messages"] == [
        {"content": "k1", "role": "assistant", "weight": 0},
        {"content": "k2", "role": "assistant"},
    ]
    assert (accepted.responses, accepted.repeated) == (("k2",), ("x",))
    assert accepted.example == blake2b(bytes(accepted.record), digest_size=16).hexdigest()
    assert again == ev.ExampleDuplicate(example="a", source="s1", line=2, of="x")


def test_a_text_that_is_nearly_known_names_what_it_resembles_unless_it_is_not_compared() -> None:
    known = {"old": signed(1, 2, 3)}
    near, far = lesson(1, "a", "k1", signature=signed(1, 2, 4)), lesson(2, "b", "k2", signature=signed(*range(9, 99)))
    too = lesson(3, "c", "k3", signature=signed(*range(9, 100)))
    first, second, third, _ = intake_events(batch(near, far, too, near_duplicate=0.9), set(), {}, known)
    assert isinstance(first, ev.ExampleDuplicate) and (first.resembles, first.of) == ("old", "")
    assert 0.98 < first.similarity < 0.99
    assert isinstance(second, ev.ExampleAccepted) and second.signature == far.signature
    assert isinstance(third, ev.ExampleDuplicate) and third.resembles == "b", "of the same batch"
    events = intake_events(batch(near, far, too), set(), {}, known)
    assert [event.kind for event in events[:3]] == ["example.accepted"] * 3


# --- what lines show about answers --------------------------------------------------------------------------------


def shown(kind: str = "correction", answer: str = "k1", **changes: object) -> Evidence:
    made = Evidence(kind, "bad", 0.8, answer, "s", ("u1", "u2"), "no, otherwise")
    return msgspec.structs.replace(made, **changes)


def flagged(lines: Batch, *known: str, responses: dict[str, str] | None = None, before: str = "") -> list[str]:
    """What each signal is of: kind and example."""
    events = intake_events(lines, set(known), responses or {}, flagged={before})
    return [f"{e.cue} {e.example}" for e in events if isinstance(e, ev.SignalFlagged)]


def test_a_signal_stands_beside_the_example_that_learns_its_answer() -> None:
    line = msgspec.structs.replace(record(1, "a"), responses=(Response("k1"),), evidence=(shown(),))
    events = intake_events(batch(line), set())
    assert [e.kind for e in events] == ["example.accepted", "signal.flagged", "source.consumed"]
    assert events[1] == ev.SignalFlagged(
        signal=shown().id, cue="correction", polarity="bad", strength=0.8, example="a", source="s1", line=1,
        session="s", records=("u1", "u2"), quote="no, otherwise", answer="k1",
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(events[1]))["kind"] == "correction"


def test_evidence_alone_is_no_bad_line_and_finds_the_example_of_an_earlier_one() -> None:
    late = Line(number=7, evidence=(shown(),))
    events = intake_events(batch(late), set(), {"k1": "long ago"})
    assert [e.kind for e in events] == ["signal.flagged", "source.consumed"]
    assert isinstance(events[0], ev.SignalFlagged) and events[0].example == "long ago"
    assert flagged(batch(late)) == ["correction "], "nobody learns the answer; it is recorded all the same"


def test_the_same_is_recorded_once() -> None:
    """In one batch, in a later one, in a fork of the session; another kind, polarity or answer is another signal."""
    fork = shown(session="fork", records=("v1",), quote="no, otherwise!")
    twice = batch(Line(number=7, evidence=(shown(), fork)), Line(number=8, evidence=(shown(),)))
    assert flagged(twice) == ["correction "]
    assert flagged(twice, before=shown().id) == []
    unnamed = shown(answer=""), shown(answer="", session="t"), shown(answer="", records=("u9",))
    others = (shown("undo"), shown(polarity="good"), shown(answer="k2"), *unnamed)
    assert len(flagged(batch(Line(number=9, evidence=(shown(), *others))))) == 7


def test_a_duplicate_has_its_signals_at_the_example_that_was_first() -> None:
    line = msgspec.structs.replace(record(1, "a"), responses=(Response("k1"),), evidence=(shown(),))
    assert flagged(batch(line), responses={"k1": "first"}) == ["correction first"]
    assert flagged(batch(line), "a") == ["correction a"], "accepted before answers had keys"
