"""`apollod ctl pattern` and `apollod ctl dream`: what a person sees of dreams and asks for; without children."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.childless import reached
from support.dreamt_journal import LAST, dreams_that, dreamt, story, write_story
from support.journals import accepted, completed, write

from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.facts.dreams.patterns import pattern_problem
from apollod.core.settings import PatternSettings
from apollod.supervisor.config import Config
from apollod.supervisor.sections import DreamSection

Capture = pytest.CaptureFixture[str]


def of_pattern(name: str) -> list[str]:
    """Its dreams; without a name all of them."""
    return dreams_that(lambda e: isinstance(e, ev.DreamRequested) and name in ("", e.pattern))


def under_way() -> str:
    dream = dreamt().state.dreams.open
    assert dream is not None
    return dream.id


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_story(tmp_path_factory.mktemp("dreamt") / "journal.db", story()))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return reached(tmp_path, monkeypatch)


def said(capsys: Capture, *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["ctl", *words]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def told(capsys: Capture, *words: str) -> dict[str, Any]:
    answer = json.loads(said(capsys, *words, "--json").splitlines()[-1])  # after lines of the log
    assert answer["schema_version"] == 1
    return dict(answer)


def ask(capsys: Capture, *words: str) -> str:
    """The last line that `ctl` prints, of a daemon in this process, which logs to standard output, too."""
    return said(capsys, *words, "--socket", "unused").splitlines()[-1]


# --- what there is ---------------------------------------------------------------------------------------------------


def test_the_list_of_patterns_has_figures_of_before_and_now(journal: str, capsys: Capture) -> None:
    _, _, settled, retired, active, _, last = said(capsys, "pattern", "list", "--file", journal).splitlines()
    course = dreamt().state.dreams.courses["ask"]
    window = f"{sum(course.bare[-5:])}/5"
    figures = f"{window} {course.practices} {course.dreams} {course.tokens}"
    assert settled.split() == f"ask settled 4/4 0/4 -> 4/4 4/4 -> 4/4 {figures}".split()
    assert retired.startswith("caps     retired  2/2   0/2") and "2 practices were not enough" in retired
    assert active.endswith(f"practice {under_way()}, answering")
    assert last == f"wait: practice {under_way()}, answering; waits: no daemon was asked"


def test_a_pattern_is_shown_with_intervals_budget_and_its_last_dreams(journal: str, capsys: Capture) -> None:
    page = said(capsys, "pattern", "show", "ask", "--file", journal)
    assert "before      bare 0 of 4 (0.00 to 0.49), told 4 of 4 (0.51 to 1.00), contrast 4 of 4" in page
    practices, (*_, before, last) = dreamt().state.dreams.courses["ask"].practices, of_pattern("ask")
    assert f"budget      400 practices ({400 - practices} left), no limit of tokens, 7 days (6 left)" in page
    assert "next        nothing: it is settled; it is tested again when another pattern settles" in page
    assert "    Act at once.\n" in page and page.index(f"\n{last} ") < page.index(f"\n{before} ")
    assert page.count(" ask ") == 10
    shown = told(capsys, "pattern", "show", "wait", "--file", journal)
    assert shown["pattern"]["instruction"] == LAST.instruction and not shown["pattern"]["contrast_given"]
    assert [one["dream"] for one in shown["dreams"]] == of_pattern("wait")[::-1]
    assert "did you mean ask?" in said(capsys, "pattern", "show", "asc", "--file", journal, code=1)


def test_a_daemon_that_does_not_run_has_patterns_in_its_journal(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "state").mkdir()
    write_story(tmp_path / "state" / "journal.db", story())
    file = tmp_path / "apollod.toml"
    file.write_text(f'[model]\npath = "/m"\n[state]\ndir = "{tmp_path}/state"\n')
    found = told(capsys, "pattern", "list", "--config", str(file))
    assert [one["name"] for one in found["patterns"]] == ["ask", "caps", "wait"]
    assert found["reason"] == "no daemon was asked"
    assert told(capsys, "dream", "list", "--config", str(file))["dreams"][0]["dream"] == under_way()


def test_dreams_are_listed_newest_first_as_the_view_has_them(journal: str, capsys: Capture) -> None:
    found = told(capsys, "dream", "list", "--limit", "0", "--file", journal)["dreams"]
    columns = "dream, pattern, purpose, mode, contrast, variation_of, state, reason, verdict, example, step, passed"
    rows = told(capsys, "query", f"SELECT {columns} FROM dreams ORDER BY seq DESC", "--file", journal)["rows"]
    assert [{name: one[name] for name in columns.split(", ")} for one in found] == rows and len(rows) > 25
    of_ask = told(capsys, "dream", "list", "--pattern", "ask", "--limit", "2", "--file", journal)["dreams"]
    assert [one["dream"] for one in of_ask] == of_pattern("ask")[:-3:-1]
    lines = said(capsys, "dream", "list", "--limit", "2", "--jsonl", "--file", journal).splitlines()
    assert [json.loads(line)["dream"] for line in lines] == of_pattern("")[:-3:-1]
    assert len(said(capsys, "dream", "list", "--file", journal).splitlines()) == 22
    assert told(capsys, "dream", "list", "--pattern", "no'ne", "--file", journal)["dreams"] == []


def test_a_dream_is_a_story_from_its_seeds_to_its_step(journal: str, capsys: Capture) -> None:
    (dream,) = dreams_that(lambda e: isinstance(e, ev.DreamJudged) and e.better is not None)
    step = next(r.event.step for r in story() if isinstance(r.event, ev.DreamTrained) and r.event.dream == dream)
    page = said(capsys, "dream", "show", dream, "--file", journal)
    beginnings = [line for line in page.splitlines() if line.startswith(("==", "  --", "    from", '    "'))]
    assert beginnings == [
        "== to be learned",
        "== a situation is imagined (10 tokens, 0.0 s)",
        f"    from /notes/lessons.md#{dream[1:]}",
        "  -- user",
        "  -- before it stands a surrounding of kind neutral (neutral practice 0)",
        "== the model is told",
        "  -- and answers (5 tokens, 0.0 s), mean log-probability -0.50 a token",
        "== the judge says that the answer is bad: because",
        '    "answer"',
        "  -- and writes a better one",
        "== the judge says that the better answer is good: because",
        '    "answer"',
        f"== learned without the instruction: example dream-caps-bare-{dream}, step {step}, loss 1",
    ]
    assert page.startswith(f"dream       {dream} of caps, settled\n") and "\n    Answer in capitals.\n" in page
    held = said(capsys, "dream", "show", of_pattern("ask")[0][1:], "--file", journal)
    practices = dreamt().state.dreams.courses["ask"].practices
    tests = [line for line in held.splitlines() if line.startswith("== tested")]
    assert sum("sampled answer" not in line for line in tests) == 5
    assert f"final {practices}: passed, says the check (regex)" in held
    assert f"== tested without being told, final {practices}, sampled answer 2: passed" in held
    practised = dreams_that(lambda e: isinstance(e, ev.DreamTrained))[0]
    variation = next(e.event.dream for e in story() if getattr(e.event, "of", "") == practised)
    assert f"== tested with variations: {variation}" in said(capsys, "dream", "show", practised, "--file", journal)
    (abandoned,) = dreams_that(lambda e: isinstance(e, ev.DreamAbandoned))
    assert "== abandoned: the answer is called unsure" in said(capsys, "dream", "show", abandoned, "--file", journal)
    trail = told(capsys, "dream", "show", dream, "--file", journal)["dream"]["trail"]
    assert [one["kind"] for one in trail][:2] == ["dream.requested", "dream.imagined"] and "sketch" not in trail[1]


def test_what_a_dream_says_cannot_steer_the_terminal_and_a_failed_call_is_part_of_it(
    tmp_path: Path, capsys: Capture
) -> None:
    events = [
        ev.PatternAdded(PatternSettings("ask", "Ask\x1b[2J."), "me"),
        ev.DreamRequested("d1", "ask", "practice", "contrast", "Act at once."),
        ev.DreamFailed("d1", "imagining", 1, "nonsense", "prose \x1b[2J"),
        ev.DreamAbandoned("d1", "gone \x1b[2J"),
    ]
    path = str(write(tmp_path / "journal.db", events))
    page = said(capsys, "dream", "show", "d1", "--file", path)
    assert "== imagining, attempt 1, gave nothing usable (nonsense): prose" in page and "in contrast" in page
    assert "\x1b" not in page + said(capsys, "dream", "list", "--file", path)
    assert "\x1b" not in said(capsys, "pattern", "show", "ask", "--file", path)


@pytest.mark.parametrize(
    ("dream", "code", "words"),
    [("x", 2, "is no dream"), ("d" + "9" * 30, 2, "is no dream"), ("d99", 1, "the last one is d")],
)
def test_what_is_no_dream(journal: str, dream: str, code: int, words: str, capsys: Capture) -> None:
    assert words in said(capsys, "dream", "show", dream, "--file", journal, code=code)


# --- what is asked for -----------------------------------------------------------------------------------------------


ADD = ("pattern", "add", "ask", "--instruction", "Ask first.", "--regex", "[?]")


def test_a_pattern_is_added_changed_and_retired(config: Config, capsys: Capture) -> None:
    assert ask(capsys, *ADD).startswith("ask is added; its held-out scenarios are imagined first (waits: ")
    assert ask(capsys, *ADD).startswith("ask is there already, just so; nothing was changed")
    assert ask(capsys, *ADD, "--settle", "9/10").startswith("ask was another pattern, and begins anew")
    assert ask(capsys, "pattern", "retire", "ask") == "ask is retired"
    assert "ask is retired already" in said(capsys, "pattern", "retire", "ask", "--socket", "unused", code=1)
    assert ask(capsys, *ADD, "--settle", "9/10").startswith("ask was retired, and begins anew")
    assert "there is no pattern as; did you mean ask?" in said(
        capsys, "pattern", "retire", "as", "--socket", "unused", code=1
    )
    (one,) = told(capsys, "pattern", "list", "--socket", "unused")["patterns"]
    assert (one["state"], one["settle"], one["check"]) == ("active", [9, 10], {"regex": "[?]"})
    kinds = [one["kind"] for one in told(capsys, "events", "--file", str(config.journal_path))["events"]]
    assert kinds == ["pattern.added", "pattern.added", "pattern.retired", "pattern.added"]


def test_everything_of_a_pattern_can_be_typed(
    config: Config, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.md").write_text("Ask first.\nThen wait.\n")
    (tmp_path / "check.sh").write_text("#!/bin/sh\n")
    (tmp_path / "check.sh").chmod(0o755)
    words = "--seed notes/ --seed view:signals --contrast No. --contrast Never. --objective context --held-out 3"
    words += " --dreams 4 --tokens 5 --days 0.5 --settle 2/3 --instruction-file ask.md --situations 6"
    ask(capsys, "pattern", "add", "ask", "--command", "./check.sh 'a b'", *words.split())
    (event,) = told(capsys, "events", "--file", str(config.journal_path))["events"]
    assert msgspec.convert(event["body"]["pattern"], PatternSettings) == PatternSettings(
        "ask", "Ask first.\nThen wait.", (f"{tmp_path}/notes/", "view:signals"),
        msgspec.convert({"command": [f"{tmp_path}/check.sh", "a b"]}, type(LAST.check)), ("No.", "Never."), "context",
        (2, 3), 3, 4, 5, 0.5, situations=6,
    )  # fmt: skip
    assert event["body"]["by"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["Ask", "--instruction", "x"], "a name is of small letters"),
        (["ask", "--instruction", " "], "instruction is empty"),
        (["ask", "--instruction-file", "nowhere"], "nowhere cannot be read"),
        (["ask", "--instruction", "x", "--settle", "5/4"], "settle = [5, 4] can never be reached"),
        (["ask", "--instruction", "x", "--held-out", "0"], "held_out"),
        (["ask", "--instruction", "x", "--days", "-1"], "days"),
        (["ask", "--instruction", "x", "--days", "nan"], "days"),
        (["ask", "--instruction", "x", "--contrast", "a", "--contrast", "a"], "a text twice"),
        (["ask", "--instruction", "x", "--command", "'"], "--command"),
        (["ask", "--instruction", "x", "--regex", "("], "is no regular expression"),
        (["ask", "--instruction", "x", "--command", "no-such-program"], "is not there"),
        (["ask", "--instruction", "x", "--schema", "nowhere.json"], "nowhere.json cannot be read"),
        (["ask", "--instruction", "x", "--seed", "view:none"], "there is no view:none, but view:signals"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_way_out(
    config: Config, words: list[str], why: str, capsys: Capture
) -> None:
    error = said(capsys, "pattern", "add", *words, "--socket", "unused", code=2)
    assert why in error and (";" in error), error
    assert not config.journal_path.exists() or told(capsys, "pattern", "list", "--socket", "unused")["patterns"] == []


@pytest.mark.parametrize("words", [["--settle", "4"], ["--held-out", "-1"], ["--regex", "a", "--rubric", "b"], []])
def test_what_cannot_be_parsed_is_usage(words: list[str]) -> None:
    told = ["--instruction", "x"] if words else []
    with pytest.raises(SystemExit) as ended:
        main(["ctl", "pattern", "add", "ask", *told, *words, "--socket", "unused"])
    assert ended.value.code == 2


def test_a_pattern_of_the_configuration_is_changed_there(
    config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Config, "dream", DreamSection(pattern=(PatternSettings("ask", "Ask first."),)))
    error = said(capsys, *ADD, "--socket", "unused", code=2)
    assert "is a pattern of the configuration" in error and "change it there" in error
    assert ask(capsys, "pattern", "add", "ask", "--instruction", "Ask first.").startswith("ask is added")


def test_dreams_are_started_and_stopped(config: Config, capsys: Capture) -> None:
    assert "there is no pattern to dream of" in said(capsys, "dream", "start", "--socket", "unused", code=1)
    ask(capsys, *ADD)
    assert "did you mean ask?" in said(capsys, "dream", "start", "--pattern", "as", "--socket", "unused", code=1)
    started = ask(capsys, "dream", "start", "--pattern", "ask", "--count", "5")
    assert started.startswith("5 practices of ask; first ask: held-out scenario 1 of 10; waits: ")
    stopped = ask(capsys, "dream", "stop")
    assert stopped == "no dream begins any more, until `apollod ctl dream start`"
    assert "were stopped already (stopped by " in ask(capsys, "dream", "stop")
    (event,) = [
        one for one in told(capsys, "events", "--file", str(config.journal_path))["events"]
        if one["kind"] == "dreaming.started"
    ]  # fmt: skip
    assert (event["body"]["pattern"], event["body"]["count"]) == ("ask", 5)
    ask(capsys, "pattern", "retire", "ask")
    assert "so there is nothing to practise" in said(capsys, "dream", "start", "--socket", "unused", code=1)


# --- proposals -------------------------------------------------------------------------------------------------------

CARE = 'Say what you will do,\nthen wait for "yes".'


def test_proposals_are_toml_that_can_be_pasted(tmp_path: Path, capsys: Capture) -> None:
    def stripped(example: str, text: str, source: str) -> ev.ExampleAccepted:
        removed = (ev.Removed(place=0, at=-1, text=text, why="system", role="system"),)
        return msgspec.structs.replace(accepted(example, 1, source), removed=removed)

    ids = [f"{n:032x}" for n in range(6)]
    events: list[ev.Event] = [ev.PatternAdded(PatternSettings("say-what-you-will-do", "Other."), "me")]
    events += [stripped(id_, CARE if n < 4 else "Be brief.", f"s{n % 2}") for n, id_ in enumerate(ids)]
    events += [stripped(f"{9:032x}", "Never twice.", "dream:d1"), *completed(1, 0, ids[0]), *completed(2, 1, ids[1])]
    events += completed(3, 2, f"{9:032x}")
    path = str(write(tmp_path / "journal.db", events))
    toml = said(capsys, "pattern", "propose", "--learned", "1", "--file", path)
    (pattern,) = tomllib.loads(toml)["dream"]["pattern"]
    assert pattern == {"name": "say-what-you-will-do-2", "instruction": CARE}
    assert toml.startswith("# stripped (system) from 4 examples of 2 sessions; 2 of them are learned\n")
    assert pattern_problem(msgspec.convert(pattern, PatternSettings)) == ""
    found = told(capsys, "pattern", "propose", "--learned", "0", "--file", path)["proposals"]
    assert [(one["instruction"], one["learned"]) for one in found] == [(CARE, 2), ("Be brief.", 0)]
    assert main(["ctl", "pattern", "propose", "--file", path]) == 0
    assert "nothing was stripped from 3 learned examples or more" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a\n'''b", "a\r\nb", "it is\n'so'", "a\x07\nb", "\nfirst", "日本\n語\t", "a\\n\nb"])
def test_any_text_is_the_same_after_toml(text: str) -> None:
    from apollod.cli.control.pattern_given import _long_text

    assert tomllib.loads(f"a = {_long_text(text)}") == {"a": text}
