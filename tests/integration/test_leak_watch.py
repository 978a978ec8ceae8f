"""Probes and the examples of a real journal: which ones count, that each is looked at once, and what a measurement says
of one that holds a probe."""

import json
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from support.journals import completed, write
from support.llm_server import serving
from support.probed_server import Model
from support.running_loop import running_loop

from apollod.adapters.journal.journal_reader import events
from apollod.cli.control import ctl
from apollod.cli.main import main
from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.curation.probes.leaks import Leaks
from apollod.curation.probes.probe_item import Probe, digest
from apollod.curation.probes.probe_lines import read_probes
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.control import HANDLERS as HANDLED
from apollod.supervisor.executor.quality_effects import HANDLERS
from apollod.supervisor.quality.leak_watch import Leak, LeakWatch, would_hold
from apollod.supervisor.quality.prober import EASY, probes_of
from apollod.supervisor.quality.reference_files import ReferenceFiles
from apollod.supervisor.requests.asked import Daemon
from apollod.wire import messages as msg
from apollod.wire.records import parse_line

FERRY, BARGE = "The ferry left the quay at noon with nine goats.", "A barge of coal came up the canal after dark."
OWN = [{"kind": "text", "id": "ferry", "text": FERRY}, {"kind": "text", "id": "barge", "text": BARGE}]
PATH = "/logs/day.jsonl"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in OWN))
    return path


def probes(path: Path) -> tuple[Probe, ...]:
    return tuple(read_probes(path.read_bytes().splitlines(), str(path)))


def accepted(example: str, text: str = FERRY, line: int = 1, source: str = "src") -> ev.ExampleAccepted:
    record = json.dumps({"text": f"Well. {text} So it was."}, separators=(",", ":")).encode()
    return ev.ExampleAccepted(example=example, record=msgspec.Raw(record), source=source, line=line)


def held(example: str) -> ev.ExampleHeld:
    return ev.ExampleHeld(example=example, tier="bulk", reason="r")


def for_the_judge(example: str) -> ev.ExampleHeld:
    return msgspec.structs.replace(held(example), waits_for="judge")


def journal(tmp_path: Path, then: Iterable[ev.Event], name: str = "journal.db") -> Path:
    """With the source of its examples."""
    path = tmp_path / name
    source = [
        ev.SourceDiscovered(source="src", path=PATH),
        ev.SourceConsumed(source="src", path=PATH, offset=9, line=9, accepted=1, duplicates=0, rejected=0),
    ]
    write(path, [*source, *then])
    return path


def leaks(watch: LeakWatch, asked: tuple[Probe, ...]) -> list[Leak]:
    return anyio.run(watch.leaks, asked)


DECLINED = ev.ExampleDeclined(example="x", tier="bulk", by="p")
WITHDRAWN = ev.ExampleWithdrawn(examples=("x",), by="p")
APPROVED = ev.ExampleApproved(example="x", tier="bulk", by="p")
BACK = ev.RollbackStarted(to=0, from_step=1, fingerprint="", origin="", replay=(), undone=(1,), examples=("x",))


@pytest.mark.parametrize(
    ("then", "learned"),
    [
        ([], False),
        (completed(1, 0, "x"), True),
        (completed(1, 0, "x", None), None),
        ([*completed(1, 0, "x"), BACK], None),
        ([held("x")], None),
        ([for_the_judge("x")], False),
        ([for_the_judge("x"), held("x")], None),
        ([held("x"), APPROVED], False),
        ([DECLINED], None),
        ([WITHDRAWN], None),
        ([WITHDRAWN, ev.ExampleRequeued(example="x", tier="bulk", by="p")], False),
        ([ev.ExampleRejected(example="x", reason="too long")], None),
    ],
    ids=[
        "pending",
        "trained",
        "skipped",
        "undone",
        "held",
        "judged",
        "was judged",
        "approved",
        "declined",
        "withdrawn",
        "again",
        "rejected",
    ],
)
def test_what_was_or_will_be_learned_counts(
    then: list[ev.Event], learned: bool | None, tmp_path: Path, mine: Path
) -> None:
    path = journal(tmp_path, [accepted("o", "Nothing of that.", 1), accepted("x", line=2), *then])
    found = leaks(LeakWatch(path), probes(mine))
    assert [(one.probe.id, one.example, one.place, one.state == "trained") for one in found] == (
        [] if learned is None else [("ferry", "x", f"{PATH}:2", learned)]
    )


def test_of_several_examples_one_that_was_learned_is_named(tmp_path: Path, mine: Path) -> None:
    story = [accepted("w"), accepted("t", f"{BARGE} {FERRY}", 2, "http"), *completed(1, 0, "t"), accepted("z", BARGE)]
    found = leaks(LeakWatch(journal(tmp_path, story)), probes(mine))
    assert [(one.probe.id, one.example, one.state) for one in found] == [
        ("ferry", "t", "trained"),
        ("barge", "t", "trained"),
    ]
    assert found[0].place == "http:2" and found[0].what == f"the words of the probe ferry ({mine}:1)"


def test_each_example_is_looked_at_once_for_the_same_probes_and_again_for_others(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []
    of = Leaks.of
    monkeypatch.setattr(Leaks, "of", lambda self, record: looked.append(record) or of(self, record))
    path = journal(tmp_path, [accepted(f"e{n}", f"Line {n} of a log.", n) for n in range(250)])
    watch = LeakWatch(path)
    assert leaks(watch, probes(mine)) == [] and len(looked) == 250, "more than a page"
    write(path, [accepted("x")])
    assert [one.example for one in leaks(watch, probes(mine))] == ["x"] and len(looked) == 251
    write(path, [WITHDRAWN])
    assert leaks(watch, probes(mine)) == [] and len(looked) == 251, "what became of it is asked again"
    leaks(watch, probes(mine)[1:])
    assert len(looked) == 251 + 251


def test_examples_of_an_archive_count_as_long_as_it_is_there(tmp_path: Path, mine: Path) -> None:
    old = journal(tmp_path, [accepted("t"), *completed(1, 0, "t"), accepted("p", BARGE)], "old.db")
    on = ev.JournalContinued(
        archive=str(old), events=9, head_hash="", step=1, fingerprint="", checkpoint="", last_step=1
    )
    new = tmp_path / "new.db"
    write(new, [on, accepted("p", BARGE), ev.ExampleDeclined(example="p", tier="bulk", by="p")])
    found = leaks(LeakWatch(new), probes(mine))
    assert [(one.probe.id, one.example, one.place) for one in found] == [("ferry", "t", f"{PATH}:1")]
    old.rename(tmp_path / "away.db")
    assert leaks(LeakWatch(new), probes(mine)) == []


# --- a measurement ---------------------------------------------------------------------------------------------------


def measured(given: Callable[[int], Config], watch: LeakWatch) -> inp.Input:
    """`given`: the configuration for a port."""

    async def main() -> inp.Input:
        async with serving() as server:
            made = given(server.port)
            asked = {one.messages[-1]["content"]: "so so" for one in probes_of(made) if one.messages}
            server.otherwise = Model(asked)
            context = cast(Any, SimpleNamespace(
                config=made, leaks=watch, judge=None, references=ReferenceFiles(),
            ))  # fmt: skip
            return cast(inp.Input, await HANDLERS[fx.MeasureQuality].run(context, fx.MeasureQuality(3)))

    return anyio.run(main)


def at(*own: Path) -> Callable[[int], Config]:
    named = f"quality.probe={json.dumps([str(one) for one in own])}"
    return lambda port: load_config(None, ["model.path=/m", "quality.levels=1", f"engine.port={port}", named], {})


@pytest.mark.parametrize("trained", [False, True])
def test_a_persons_probe_in_an_example_fails_the_measurement_with_one_line(
    trained: bool, tmp_path: Path, mine: Path
) -> None:
    path = journal(tmp_path, [accepted("x", line=7), *(completed(1, 0, "x") if trained else [])])
    found = measured(at(mine), LeakWatch(path))
    assert isinstance(found, inp.ProbesFailed) and found.number == 3 and "\n" not in found.reason
    for part in (f"the probe ferry ({mine}:1)", f"the example x of {PATH}:7"):
        assert part in found.reason
    assert ("was learned" in found.reason) is trained
    assert ("`apollod ctl quality baseline`" in found.reason) is trained
    assert ("`apollod ctl example withdraw x`" in found.reason) is not trained


def test_one_that_the_judge_may_approve_is_declined_by_a_person(tmp_path: Path, mine: Path) -> None:
    path = journal(tmp_path, [accepted("x"), for_the_judge("x")])
    found = measured(at(mine), LeakWatch(path))
    assert isinstance(found, inp.ProbesFailed) and "waits for the judge" in found.reason
    assert "`apollod ctl example decline x`" in found.reason
    write(path, [DECLINED])
    assert isinstance(measured(at(mine), LeakWatch(path)), inp.ProbesAnswered)


def test_a_person_gets_out_of_it(tmp_path: Path, mine: Path) -> None:
    path = journal(tmp_path, [accepted("x"), accepted("t", BARGE), *completed(1, 0, "t")])
    watch = LeakWatch(path)
    found = measured(at(mine), watch)
    assert isinstance(found, inp.ProbesFailed) and f"({mine}:1)" in found.reason and "1 more" in found.reason
    write(path, [WITHDRAWN])
    found = measured(at(mine), watch)
    assert isinstance(found, inp.ProbesFailed) and f"({mine}:2)" in found.reason
    mine.write_text(json.dumps(OWN[0]) + "\n")
    found = measured(at(mine), watch)
    assert isinstance(found, inp.ProbesAnswered) and found.left_out == {}


def test_a_probe_that_comes_with_apollod_is_left_out_and_named(tmp_path: Path, mine: Path) -> None:
    shipped = read_probes((files("apollod") / "data" / EASY).read_bytes().splitlines(), "s")
    known = next(one for one in shipped if one.kind == "text")
    path = journal(tmp_path, [accepted("s", known.text, 4), *completed(1, 0, "s")])
    found = measured(at(mine), LeakWatch(path))
    assert isinstance(found, inp.ProbesAnswered), found
    assert found.left_out == {known.id: f"s of {PATH}:4"}
    assert known.id not in set().union(*found.figures.values()) and "ferry" in set().union(*found.figures.values())
    assert found.probes == digest(probes_of(at(mine)(1))), "still a look with the probes of the baseline"


def test_where_no_probe_is_left_it_says_what_to_do(tmp_path: Path) -> None:
    lines = (files("apollod") / "data" / EASY).read_bytes().splitlines()
    shipped = read_probes(lines, "s")
    said = [one.text or "\n".join(m["content"] for m in one.messages if m["role"] != "system") for one in shipped]
    long = [accepted(f"e{n}", one, n) for n, one in enumerate(said, 1)]
    short = [
        ev.ExampleAccepted(
            example=f"s{n}", record=msgspec.Raw(json.dumps({"text": one}).encode()), source="src", line=n
        )
        for n, one in enumerate(said, 1)
    ]
    found = measured(at(), LeakWatch(journal(tmp_path, [*long, *short])))
    assert isinstance(found, inp.ProbesFailed) and "name a file of your own in [quality] probe" in found.reason
    assert found.cause == "unable", "a log that happens to hold them all must not stop training"


# --- what comes in ---------------------------------------------------------------------------------------------------


def guarding(path: Path, mine: Path, requests: Iterable[object]) -> list[msg.Answer]:
    """What a daemon without children answers whose guard knows these probes."""

    async def run() -> list[msg.Answer]:
        made = at(mine)(1)
        async with running_loop(path, LeakWatch(path, probes(mine)).said_of) as (loop, _):
            daemon = Daemon(made, loop, loop.journal, *cast(Any, [None] * 5))
            return [await HANDLED[type(one)](daemon, one) for one in requests]

    return anyio.run(run)


def of_kind(path: Path, kind: str) -> list[dict[str, Any]]:
    return [one["body"] for one in events(path, kind=kind)]


def text(said: str) -> bytes:
    return json.dumps({"text": said}).encode()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of a daemon with this state directory."""
    monkeypatch.setattr(Config, "state_dir", property(lambda self: tmp_path))
    (tmp_path / "quarantine").mkdir()
    return tmp_path / "journal.db"


def test_a_probe_that_ships_is_learned_when_somebody_gives_it(tmp_path: Path, mine: Path) -> None:
    """Nobody knows these, and people teach such things; a look leaves it out from then on."""
    asked = probes_of(at(mine)(1))
    (france,) = [one for one in asked if one.id == "facts/france"]
    said = json.dumps({"text": f"{france.messages[-1]['content']} Paris."}).encode()
    watch, refused = LeakWatch(tmp_path / "none.db", asked), would_hold(at(mine)(1))
    assert watch.said_of([said, text(FERRY)]) == ["", f"the words of the probe ferry ({mine}:1)"]
    assert (refused(said), bool(refused(text(FERRY)))) == ("", True)


def test_a_submitted_probe_is_held_and_whoever_gave_it_is_told(here: Path, mine: Path) -> None:
    lines = [text("All is well tonight."), text(f"He read: {FERRY}"), text("Nothing more.")]
    again = msg.SubmitRequest(lines, "ctl:f")
    answers = guarding(here, mine, [msg.SubmitRequest(lines, "ctl:f"), again])
    first, second = (cast(msg.Reply, one).body for one in answers)
    (one,) = first["held"]
    assert one["line"] == 2 and one["example"] == first["examples"][1] and f"ferry ({mine}:1)" in one["reason"]
    assert len(first["examples"]) == 3 and second["held"] == [] and len(second["duplicates"]) == 3
    (held_,) = of_kind(here, "example.held")
    assert held_["example"] == one["example"] and held_["reason"] == one["reason"]


def test_who_submits_a_probe_at_a_terminal_is_told(
    here: Path, mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(path: str, request: object, timeout_s: float = 0.0) -> object:
        return cast(msg.Reply, guarding(here, mine, [request])[0]).body

    monkeypatch.setattr(ctl, "ask", ask)
    given = here.with_name("given.jsonl")
    given.write_bytes(text("All is well tonight.") + b"\n" + text(FERRY) + b"\n")
    assert main(["ctl", "submit", str(given), "--socket", "unused"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "2 accepted, 0 duplicates, 0 rejected"
    assert err.startswith(f"apollod: {given}:2: held for a person: it holds the words of the probe ferry ({mine}:1)")


def test_what_is_given_again_is_looked_at_again_since_it_may_be_taught_again(here: Path, mine: Path) -> None:
    looked: list[bytes] = []

    def nothing(records: Sequence[bytes]) -> list[str]:
        looked.extend(records)
        return [""] * len(records)

    async def run() -> None:
        async with running_loop(here, nothing) as (loop, _):
            for _ in range(2):
                lines = tuple(lines_of_texts("one of them", "another one"))
                batch = inp.Batch(source="s", path="/in/a", offset=1, line=2, lines=lines)
                await loop.submit(inp.LinesRead(batch, frozenset()))

    anyio.run(run)
    assert len(looked) == 4 and len(of_kind(here, "example.duplicate")) == 2


def test_an_edit_with_a_probe_is_refused_and_changes_nothing(here: Path, mine: Path) -> None:
    write(here, [accepted("x", "Nothing of that."), held("x")])
    (answer,) = guarding(here, mine, [msg.EditRequest("x", text(BARGE), "p")])
    assert isinstance(answer, msg.Failure) and f"the probe barge ({mine}:2)" in answer.error
    assert answer.hint.startswith("nothing was changed") and not of_kind(here, "example.edited")


def test_without_a_guard_a_probe_is_learned_as_anything_else(here: Path) -> None:
    async def run() -> None:
        async with running_loop(here) as (loop, _):
            batch = inp.Batch(source="s", path="/in/a", offset=1, line=1, lines=tuple(lines_of_texts(FERRY)))
            await loop.submit(inp.LinesRead(batch, frozenset()))

    anyio.run(run)
    assert len(of_kind(here, "example.accepted")) == 1 and not of_kind(here, "example.held")


@pytest.mark.parametrize("way", ["judge", "dream", "rating"])
def test_what_models_and_ratings_bring_is_looked_at_too(way: str, here: Path, mine: Path) -> None:
    (line,) = lines_of_texts(FERRY)
    judged = inp.Judged((), 0, 0, 0)
    given: inp.Input = {
        "judge": inp.JudgeAnswered("s", 1, judged, line),
        "dream": inp.DreamVerdict(ev.DreamJudged("d1", "good", "regex"), "judging", line),
        "rating": inp.Rated("r", "good", "p", line=line),
    }[way]

    async def run() -> inp.Input:
        async with running_loop(here, LeakWatch(here, probes(mine)).said_of) as (loop, _):
            return await loop._with_known(given)

    told = cast(Any, anyio.run(run)).line
    assert told.leak == f"the words of the probe ferry ({mine}:1)"


def lines_of_texts(*texts: str) -> Iterable[inp.Line]:
    for number, one in enumerate(texts, 1):
        record = parse_line(text(one))
        yield inp.Line(number=number, example=record.id, record=record.canonical)
