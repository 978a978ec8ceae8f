"""`apollod ctl quality incident list|show`: an alarm from what fell to the look afterwards, from the journal alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.dreamt_journal import write_story
from support.guarded_world import ITEMS, GuardedWorld, guarded
from support.world import World

from apollod.cli.control.quality.incident import WORDS_MAX, held_by_guard, taught
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.events import VerdictKind
from apollod.core.facts.quality.sequential import Metric

Capture = pytest.CaptureFixture[str]
TAUGHT = {"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "No,\x1b[2J\nnever."}]}


def worded(world: World) -> list[ev.Recorded]:
    """Its journal, in which examples have words."""

    def one(event: ev.Event) -> ev.Event:
        if not isinstance(event, ev.ExampleAccepted):
            return event
        return msgspec.structs.replace(event, record=msgspec.Raw(json.dumps(TAUGHT).encode()))

    return [msgspec.structs.replace(r, event=one(r.event)) for r in world.journal]


def shown(path: Path, capsys: Capture, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ctl", "quality", "incident", "show", *words, "--file", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    return dict(answer["incident"])


def page(path: Path, capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(["ctl", "quality", "incident", *words, "--file", str(path)]) == 0
    return capsys.readouterr().out


def alarmed(*lines: str, poison: dict[str, int], **settings: Any) -> GuardedWorld:
    world = GuardedWorld(guarded(**{"every_steps": len(lines)} | settings)).up()
    world.poison = poison
    world.lines(*lines)
    return world


def test_the_story_has_all_from_what_fell_to_the_look_afterwards(tmp_path: Path, capsys: Capture) -> None:
    world = alarmed(*"abcd", "bad", "e", poison={"bad": ITEMS})
    world.settle()
    path = write_story(tmp_path / "journal.db", worded(world))
    one = shown(path, capsys, "1")
    (named,), (back,) = world.of(ev.QualityNamed), world.of(ev.RollbackStarted)
    assert (one["number"], one["state"], one["step"], one["to"], one["metrics"]) == (
        1,
        "settled",
        6,
        0,
        ["facts.passed"],
    )
    assert one["drops"]["facts.passed"].keys() == {"drop", "low", "high"}
    fallen = [
        {"metric": "facts.passed", "before": "right", "at_alarm": "wrong", "probe": f"i{n:02}"} for n in range(ITEMS)
    ]
    assert one["answers"] == fallen
    place = {"path": "file", "line": 5, "source": "file"}
    assert one["culprits"] == [{"example": "bad", "state": "held", "text": "No,\x1b[2J never.", **place}]
    (begun,) = world.of(ev.QualitySearchBegun)
    assert (one["verdict"], one["replays"], one["replays_max"]) == ("named", named.replays, begun.replays_max)
    assert [each["left_out"] for each in one["searched"]] == [len(e.left_out) for e in world.of(ev.QualityReplayBegun)]
    assert [each["outcome"] for each in one["searched"]][:2] == ["good", "bad"] and one["suspects"] == []
    assert (one["taken_back"], one["repeated"]) == (len(back.undone), 5) and one["settled"]["by"] == "the quality guard"
    assert (one["after"]["outcome"], one["after"]["step"]) == ("passed", world.state.training.version)
    kinds = [each["kind"] for each in one["story"]]
    assert kinds == [
        "quality.alarmed", "rollback.started", "rollback.completed", "quality.measured", "quality.search_begun",
        "quality.named", "example.held", "step.started", "quality.settled", "quality.measured",
    ]  # fmt: skip
    assert [each["seq"] for each in one["story"]] == sorted(each["seq"] for each in one["story"])
    assert all(set(each) == {"at", "seq", "kind", "text"} and each["text"] for each in one["story"])
    text = page(path, capsys, "show", "1")
    assert "verdict     named: 1 example did it; no other does harm by itself" in text
    assert "    bad  file:5\n        held, teaches: No,\\x1b[2J never.\n" in text and "\x1b" not in text
    assert "repeated    5 innocent steps: step 1 as 7 to step 6 as 11" in text and "no alarm (drop:" in text
    assert "    i04\n        before    right\n        at alarm  wrong\n" in text and "i05" not in text
    assert f"    and {ITEMS - 5} more: --json has them" in text
    assert "left out" not in text and " no harm" in (more := page(path, capsys, "show", "1", "--verbose"))
    assert "5 steps repeated with the examples that are left" in more
    row = page(path, capsys, "list").splitlines()[-1]
    assert "named" in row and "settled" in row


def test_weights_that_are_worse_too_are_told_with_where_it_went_then(tmp_path: Path, capsys: Capture) -> None:
    world = alarmed("a", "bad", poison={"bad": ITEMS})
    world.settle()
    (back,) = (place for place, each in enumerate(world.journal) if isinstance(each.event, ev.RollbackCompleted))
    before = world.journal[: back + 1]
    worse = ev.QualityNotGood(incident=1, step=0, to=0, metrics=("facts.passed",))
    path = write_story(tmp_path / "journal.db", [*before, ev.Recorded(before[-1].seq + 1, world.now, worse)])
    one = shown(path, capsys, "1")
    assert one["to"] == 0 and one["waits_for"] == "the last good weights"
    assert one["story"][-1]["text"] == "step 0 is worse, too: facts.passed; good at step 0"


def test_replays_are_in_the_margins_of_the_guard(tmp_path: Path, capsys: Capture) -> None:
    """A replay measures lost probability for what is neither a rate nor a loss, so that its margin is that of rates."""
    world = GuardedWorld(guarded(margin=0.05)).up()
    entropy = {"entropy": Metric(0.5, 5.0)}
    later = [
        ev.QualityMeasured(9, "steps", 3, "p", {"entropy": {"i": 1.0}}, after=entropy),
        ev.QualityAlarmed(1, 3, 0, ("entropy",), {}, {"entropy": ("i",)}),
        ev.QualitySearchBegun(1, ("a", "b"), 9),
        ev.QualityReplayBegun(1, 1, ("a", "b")),
        ev.QualityReplayed(1, 1, {"entropy": 0.0}, 0, 1.0),
        ev.QualityReplayBegun(1, 2, ()),
        ev.QualityReplayed(1, 2, {"entropy": 0.2}, 2, 1.0),
    ]
    first = world.journal[-1].seq + 1
    recorded = [ev.Recorded(seq, world.now, event) for seq, event in enumerate(later, first)]
    one = shown(write_story(tmp_path / "journal.db", [*world.journal, *recorded]), capsys)
    assert [(each["damage"], each["outcome"]) for each in one["searched"]] == [
        (0.0, "good"),
        (pytest.approx(4.0), "bad"),
    ]
    assert one["window"] == 2 and one["replays"] == 2


def test_what_was_decided_about_the_culprits_since_is_told(tmp_path: Path, capsys: Capture) -> None:
    world = alarmed("a", "bad", "worse", "d", poison={"bad": 20, "worse": 15})
    world.settle()
    before = str(write_story(tmp_path / "before.db", world.journal))
    assert sorted(held_by_guard(before, ["a", "bad", "worse"])) == ["bad", "worse"]
    later = [
        *worded(world),
        *(
            ev.Recorded(world.journal[-1].seq + n, world.now, event)
            for n, event in enumerate(
                [
                    ev.ExampleDeclined(example="bad", tier="bulk", by="anna", reason="no"),
                    ev.ExampleApproved(example="worse", tier="bulk", by="bo"),
                ],
                1,
            )
        ),
    ]
    one = shown(write_story(tmp_path / "journal.db", later), capsys)
    assert {each["example"]: each["state"] for each in one["culprits"]} == {"bad": "declined", "worse": "pending"}
    assert [each["text"] for each in one["story"][-2:]] == [
        "example bad was declined by anna", "example worse was approved by bo"
    ]  # fmt: skip
    assert held_by_guard(str(tmp_path / "journal.db"), ["a", "bad", "worse"]) == []
    text = page(tmp_path / "journal.db", capsys, "show")
    assert "        declined since, teaches" in text and "        waits to be learned, teaches" in text


WORDS: Sequence[tuple[VerdictKind, str]] = [
    ("elsewhere", "was there before these steps"),
    ("not_repeated", "replays of all of the steps do no harm"),
    ("spread", "no few examples did it"),
    ("rate", "at a lower learning rate all of them together do no harm"),
    ("unfinished", "the search came to no end"),
    ("ranked", "it is not proven who did it"),
    ("not_searched", "it was not searched for who did it"),
]


@pytest.mark.parametrize(("kind", "words"), WORDS)
def test_each_verdict_is_told_in_words_with_its_reason(
    tmp_path: Path, capsys: Capture, kind: VerdictKind, words: str
) -> None:
    world = alarmed(*"abc", poison={"b": ITEMS})
    world.answers = False
    while not world.of(ev.QualityReplayBegun):
        world.settle()
        while world.probed:
            world.look()
    named = ev.QualityNamed(incident=1, verdict=kind, suspects=("a",), replays=3, reason="because")
    last = world.journal[-1]
    path = write_story(tmp_path / "journal.db", [*world.journal, ev.Recorded(last.seq + 1, last.at_ns, named)])
    text = page(path, capsys, "show")
    assert f"verdict     {kind}: " in text and words in text and "(because)" in text
    assert "1 more may have done it" in text and "may have\n    a  file:1\n" in text
    waits = "`apollod ctl resume`" if kind in ("elsewhere", "rate") else "the steps that are repeated"
    assert f"settled     not yet: the last good weights are back; waits for {waits}" in text


def test_a_rate_that_did_it_is_told_with_what_to_set_and_what_was_made_of_it(tmp_path: Path, capsys: Capture) -> None:
    names = [f"x{n:02}" for n in range(16)]
    settings = msgspec.structs.replace(guarded(every_steps=16, culprits_max=2), on_alarm=True)
    world = GuardedWorld(settings).up()
    world.poison, world.harmful_lr = dict.fromkeys(names, ITEMS // 4), 0.5
    world.lines(*names)
    world.settle()
    world.tells()
    world.tells()
    waits = write_story(tmp_path / "waits.db", worded(world))
    text = page(waits, capsys, "show", "--verbose")
    assert "verdict     rate: no few examples did it" in text and "use [trainer] lr = 0.25 and `apollod ctl" in text
    assert "waits for `apollod ctl resume`" in text and "of the learning rate" in text and "did it\n" not in text
    rows = {each["number"]: each for each in shown(waits, capsys)["searched"]}
    assert rows[max(rows)] | {"left_out": 0, "lr_scale": 0.25, "outcome": "good"} == rows[max(rows)]
    assert rows[2]["lr_scale"] == 1.0 and f"{max(rows):>6}" in text and "of the rate" in text
    world.give(inp.TrainingResumed("anna"))
    world.settle()
    one = shown(write_story(tmp_path / "over.db", worded(world)), capsys)
    assert (one["resumed"]["by"], one["repeated"], one["state"]) == ("anna", 16, "settled")
    assert one["settled"]["how"].endswith("at a lower learning rate") and one["after"]["outcome"] == "passed"


def test_replays_that_fail_who_was_told_and_who_resumed_are_told(tmp_path: Path, capsys: Capture) -> None:
    settings = msgspec.structs.replace(guarded(every_steps=3, resume="manual"), on_alarm=True)
    world = GuardedWorld(settings).up()
    world.no_replay, world.poison = "no room", {"b": ITEMS}
    world.lines(*"abc")
    while not world.of(ev.QualityNamed):
        world.settle()
        world.pass_time(120)
    world.tells("gone")
    world.give(inp.TrainingResumed("anna"))
    world.settle()
    one = shown(path := write_story(tmp_path / "journal.db", world.journal), capsys)
    assert [each["gives_up"] for each in one["failures"]] == [False, False, True]
    assert (one["resumed"] or one["settled"])["by"] == "anna" and one["told"][0]["reason"] == "gone"
    text = page(path, capsys, "show")
    assert "replay 1 failed, which ended the search: no room" in text and "nobody of the alarm: gone" in text


def test_two_alarms_are_two_stories_and_the_look_between_is_of_the_first(tmp_path: Path, capsys: Capture) -> None:
    world = alarmed(*"abc", poison={"b": ITEMS})
    world.settle()
    world.poison |= {"e": ITEMS}
    world.lines(*"def")
    world.settle()
    path = write_story(tmp_path / "journal.db", world.journal)
    first, second = shown(path, capsys, "1"), shown(path, capsys, "2")
    assert ([each["example"] for each in first["culprits"]], first["after"]["outcome"]) == (["b"], "passed")
    assert [each["example"] for each in second["culprits"]] == ["e"] and second["after"]["seq"] > second["settled"][
        "seq"
    ]
    assert first["story"][-1]["seq"] < second["seq"] == second["story"][0]["seq"]


def test_an_alarm_right_after_an_alarm_is_what_the_look_afterwards_said(tmp_path: Path, capsys: Capture) -> None:
    world = alarmed(*"abc", poison={"b": ITEMS})
    world.repeats = False
    world.settle()
    assert len(world.of(ev.QualityAlarmed)) > 1
    path = write_story(tmp_path / "journal.db", world.journal)
    assert shown(path, capsys, "1")["after"]["outcome"] == "alarm"
    assert "was measured: the next alarm" in page(path, capsys, "show", "1")


def test_of_many_examples_only_some_are_listed(tmp_path: Path, capsys: Capture) -> None:
    lines = [f"x{n:03}" for n in range(60)]
    world = alarmed(*lines, poison={"x007": ITEMS}, culprits_max=0)
    world.settle()
    path = write_story(tmp_path / "journal.db", world.journal)
    text = page(path, capsys, "show")
    assert "taken back  60 steps, 60 to 1" in text and "and 40 more: --json has them" in text
    assert len(text.splitlines()) < 70 and len(shown(path, capsys)["examples"]) == 60


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"text": "one\n two"}, "one two"),
        ({"prompt": "p", "completion": " c"}, "c"),
        ({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "x" * 200}]}, None),
        ({"messages": 7}, ""),
    ],
)
def test_what_a_record_teaches_are_its_first_words(record: dict[str, Any], words: str | None) -> None:
    told = taught(json.dumps(record))
    if words is None:
        assert told is not None and len(told) == WORDS_MAX and told.endswith("x...")
    else:
        assert (told or "") == words
