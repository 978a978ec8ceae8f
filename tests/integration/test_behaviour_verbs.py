"""Behaviours as lessons on the command line: on the journal of a daemon that dreamt, and on a daemon without an engine,
where a behaviour comes as far as a test says."""

from pathlib import Path

import pytest
from integration.test_lesson_verbs import CONTRACT, Capture, answer, events_of, said, states, unfolds
from support.childless import reached
from support.dreamt_journal import dreamt, story, write_story

from apollod.adapters.journal.journal_reader import query
from apollod.core import events as ev
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.settings import PatternSettings
from apollod.curation.dreaming.scenario_text import sketch_of
from apollod.supervisor.config import Config

ONE = ("--instruction", "Answer in one sentence.", "--check-regex", "^[^.]+[.]$")
NAME = "answer-in-one-sentence"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_story(tmp_path_factory.mktemp("dreamt") / "journal.db", story()))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    states(monkeypatch, "serving")
    return reached(tmp_path, monkeypatch)


def line(capsys: Capture, *words: str) -> str:
    return said(capsys, *words, "--socket", "unused").splitlines()[-1]


# --- what there is ----------------------------------------------------------------------------------------------------


def test_behaviours_are_listed_among_lessons_with_their_figures(journal: str, capsys: Capture) -> None:
    rows = [row.split() for row in said(capsys, "lesson", "list", "--file", journal).splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["wait", "behaviour", "practising"], ["caps", "behaviour", "given"], ["ask", "behaviour", "known"],
    ]  # fmt: skip
    practices = dreamt().state.dreams.courses["ask"].practices
    assert rows[2][3:7] == ["0/4", "4/4", "4/4", str(practices)] and " ".join(rows[2][-4:]) == "Ask before you act."
    given_up = said(capsys, "lesson", "list", "--state", "given up", "--json", "--file", journal)
    assert '"lesson": "caps"' in given_up and "2 practices were not enough" in given_up and '"ask"' not in given_up


def test_a_behaviour_is_shown_with_its_pattern_and_its_last_dreams(journal: str, capsys: Capture) -> None:
    page = said(capsys, "lesson", "show", "ask", "--file", journal)
    assert page.startswith("lesson      ask, known\nkind        behaviour\n")
    assert "\nfigures     bare 0 of 4 before, told 4 of 4; " in page and "; bare 4 of 4 after\n" in page
    assert page.endswith(said(capsys, "pattern", "show", "ask", "--file", journal)), "a view of the same"
    shown = answer(capsys, "lesson", "show", "caps", "--file", journal)
    assert (shown["state"], shown["kind"], shown["rounds"]) == ("given up", "behaviour", [])
    assert (shown["pattern"]["state"], len(shown["dreams"])) == (
        "retired",
        dreamt().state.dreams.courses["caps"].dreams,
    )


def test_a_definition_that_was_replaced_is_listed_as_such(config: Config, capsys: Capture) -> None:
    line(capsys, "teach", *ONE, "--no-wait")
    line(capsys, "teach", "--instruction", "Answer in two sentences.", "--name", NAME, "--no-wait")
    rows = answer(capsys, "lesson", "list")["lessons"]
    assert [(row["lesson"], row["state"], row["question"]) for row in rows] == [
        (NAME, "waiting", "Answer in two sentences."), (NAME, "replaced", "Answer in one sentence."),
    ]  # fmt: skip
    shown = answer(capsys, "lesson", "show", NAME, "--file", str(config.journal_path))
    assert (shown["state"], shown["statement"]) == ("waiting", "Answer in two sentences.")
    columns = "lesson, kind, state, statement, replaced_by"
    assert query(config.journal_path, f"SELECT {columns} FROM lessons ORDER BY seq").rows == [
        (NAME, "behaviour", "replaced", "Answer in one sentence.", NAME),
        (NAME, "behaviour", "waiting", "Answer in two sentences.", None),
    ]


# --- what is asked for ------------------------------------------------------------------------------------------------


def course(name: str, known: bool) -> list[list[ev.Event]]:
    """What becomes of it, as far as each look sees it."""
    scenario = (Turn("user", "Why?"),)
    tests = {"bare": (0, 10), "told": (10, 10), "contrast": (10, 10)}
    first: list[ev.Event] = [
        ev.DaemonStarted(1, "test", ev.Settings("/m"), "/s"),
        ev.DreamRequested("d1", name, "held-out"),
        ev.DreamImagined("d1", scenario, sketch_of("Why?")),
        ev.DreamSettled("d1"),
    ]
    if not known:
        return [first, [ev.PatternRetired(name, "baseline", "the model does not do it even when it is told")]]
    return [first, [ev.PatternSettled(name, 9, {"bare": (10, 10)}, tests, 30, 12, 900)]]


def test_a_behaviour_is_taught_and_waited_for_by_the_contract(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    unfolds(config, monkeypatch, course(NAME, known=True))
    found = answer(capsys, "teach", *ONE)
    assert {name: type(found[name]) for name in CONTRACT} == CONTRACT
    assert (found["lesson"], found["kind"], found["state"], found["already"]) == (NAME, "behaviour", "known", False)
    again = answer(capsys, "teach", *ONE)
    assert again["already"] and again["lesson"] == NAME and events_of(config).count("pattern.added") == 1
    (body,) = query(
        config.journal_path, "SELECT body ->> '$.pattern.check.regex' FROM events WHERE kind = 'pattern.added'"
    ).rows
    assert body == (ONE[3],)


def test_a_behaviour_that_is_given_up_is_exit_code_1_and_can_be_given_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    unfolds(config, monkeypatch, course("brief", known=False))
    found = answer(capsys, "teach", *ONE, "--name", "brief", code=1)
    assert (found["lesson"], found["state"]) == ("brief", "given up")
    assert found["reason"] == "the model does not do it even when it is told"
    again = answer(capsys, "teach", *ONE, "--no-wait")
    assert (again["lesson"], again["state"], again["already"]) == ("brief", "waiting", False)


def test_whoever_waits_is_told_that_another_instruction_has_the_name(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    other = PatternSettings(NAME, "Answer in two sentences.")
    unfolds(config, monkeypatch, [[ev.PatternAdded(other, "q")]])
    found = answer(capsys, "teach", *ONE, code=1)
    assert (found["lesson"], found["state"], found["question"]) == (NAME, "replaced", "Answer in one sentence.")


def test_names_are_made_of_the_instruction(config: Config, capsys: Capture) -> None:
    def given(*words: str) -> str:
        return str(answer(capsys, "teach", *words, "--no-wait")["lesson"])

    assert given("--instruction", "Answer in one sentence, always and everywhere.") == "answer-in-one-sentence-always"
    assert given("--instruction", "Answer in one sentence; always.") == "answer-in-one-sentence-always-2"
    assert given("--instruction", "Answer in one sentence; always.") == "answer-in-one-sentence-always-2"
    assert given("--instruction", "Отвечай кратко.") == "behaviour"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("It rains.", "--instruction", "Be brief."), "a behaviour or a fact?"),
        (("--instruction", "Be brief.", "--file", "NOTES.md"), "a document or a behaviour?"),
        (("It rains.", "--rubric", "short"), "of which behaviour?"),
        (("--name", "brief"), "of which behaviour?"),
        (("--instruction", " "), "instruction is empty"),
        (("--instruction", "Be brief.", "--name", "Be brief"), "a name is of small letters"),
        (("--instruction", "Be brief.", "--check-regex", "("), "no regular expression"),
    ],
)
def test_what_cannot_be_a_behaviour(config: Config, words: tuple[str, ...], why: str, capsys: Capture) -> None:
    assert why in said(capsys, "teach", *words, "--socket", "unused", code=2)
    assert "pattern.added" not in (events_of(config) if config.journal_path.exists() else [])


def test_a_behaviour_is_practised_and_forgotten(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert line(capsys, "teach", *ONE, "--no-wait") == f"{NAME} is waiting"
    assert answer(capsys, "lesson", "practise", NAME, "--no-wait")["state"] == "waiting"
    (wanted,) = query(
        config.journal_path, "SELECT body ->> '$.pattern' FROM events WHERE kind = 'dreaming.started'"
    ).rows
    assert wanted == (NAME,)
    wrong = said(capsys, "lesson", "replace", NAME, "No.", "--socket", "unused", code=2)
    assert "is a behaviour" in wrong and f"teach --instruction TEXT --name {NAME}" in wrong
    assert "the last one is " + NAME in said(capsys, "lesson", "forget", "x", "--socket", "unused", code=1)
    assert line(capsys, "lesson", "forget", NAME) == f"{NAME} is taught no more; no step had learned it"
    found = answer(capsys, "lesson", "show", NAME, "--file", str(config.journal_path))
    assert found["state"] == "given up" and found["reason"].endswith(f" had {NAME} forgotten")
    assert answer(capsys, "pattern", "show", NAME, "--file", str(config.journal_path))["pattern"]["state"] == "retired"
    assert "nothing to practise" in said(capsys, "lesson", "practise", NAME, "--socket", "unused", code=1)


def test_a_check_is_a_regular_expression_or_a_rubric(config: Config, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        said(capsys, "teach", *ONE, "--rubric", "short")
    answer(capsys, "teach", "--instruction", "Be brief.", "--rubric", "names count, too", "--no-wait")
    shown = answer(capsys, "lesson", "show", "be-brief", "--file", str(config.journal_path))
    assert shown["pattern"]["check"] == {"rubric": "names count, too"}
