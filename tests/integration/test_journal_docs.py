"""docs/journal.md and contrib/datasette say what is true: every query runs, every view and column is described."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import yaml
from support.every_view import ANCHORS, EVERY_VIEW, TAUGHT
from support.journals import STORY, TAKEN_BACK, A, dream_of, write

from apollod.adapters.journal.journal_reader import query
from apollod.core import events as ev
from apollod.core.facts.lessons.stages import Stage

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/journal.md").read_text()
QUERIES = re.findall(r"^```sql\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
METADATA = yaml.safe_load((ROOT / "contrib/datasette/metadata.yaml").read_text())["databases"]["journal"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dream_of(write(tmp_path_factory.mktemp("docs") / "journal.db", EVERY_VIEW), A)


def columns(path: Path, kind: str) -> dict[str, list[str]]:
    """Columns of every table or view of the schema."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = ?", (kind,))]
        return {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}


def documented(heading: str) -> list[str]:
    """First cells of the first table below a heading."""
    section = DOCS.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("sql", QUERIES)
def test_every_query_of_the_documentation_runs(path: Path, sql: str) -> None:
    answer = query(path, sql)
    assert answer.columns and (answer.rows or "fingerprint =" in sql)


def test_every_view_and_column_is_documented(path: Path) -> None:
    views = columns(path, "view")
    assert len(views) >= 5 and len(QUERIES) >= len(views)
    for view, names in views.items():
        assert sorted(documented(f"### `{view}`")) == sorted(names), view
        assert any(re.search(rf"\bFROM {view}\b", sql) for sql in QUERIES), view
    assert documented("## The table `events`") == columns(path, "table")["events"]


def test_the_python_example_verifies_a_journal(path: Path) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], cwd=path.parent, capture_output=True, text=True, check=True)
    ((head,),) = query(path, "SELECT hash FROM events ORDER BY seq DESC LIMIT 1").rows
    assert done.stdout == f"head {head}\n"


@pytest.mark.parametrize("name", METADATA["queries"])
def test_every_canned_query_of_datasette_runs(path: Path, name: str) -> None:
    canned = METADATA["queries"][name]
    assert canned["title"] and canned["description"]
    assert query(path, canned["sql"]).rows


def test_recent_steps_name_the_line_that_each_learned_from(path: Path) -> None:
    lines = {e.example: e.line for e in STORY if isinstance(e, ev.ExampleAccepted)}
    files = {e.source: e.path for e in STORY if isinstance(e, ev.SourceDiscovered)}
    places = {e.example: files.get(e.source, e.source) for e in STORY if isinstance(e, ev.ExampleAccepted)}
    answer = query(path, METADATA["queries"]["recent_steps"]["sql"])
    shown = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    assert (
        [(row["file"], row["line"]) for row in shown]
        == [(places[row["example"]], lines[row["example"]]) for row in shown]
        != []
    )


def test_an_exit_that_was_asked_for_is_not_among_those_nobody_asked_for(tmp_path: Path) -> None:
    story = [
        *STORY[:3], ev.TrainerExited(pid=11, code=0, reason="asked to", expected=True),
        ev.TrainerSpawned(pid=12, attempt=1),
        ev.TrainerExited(pid=12, code=-9, reason="killed"),
        ev.EngineExited(pid=10, code=0, reason="asked to", expected=True),
    ]  # fmt: skip
    answer = query(write(tmp_path / "journal.db", story), METADATA["queries"]["child_restarts"]["sql"])
    shown = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    assert [(s["child"], s["event"], s["reason"], s["starts"]) for s in shown] == [
        ("trainer", "exited", "killed", 2), ("trainer", "spawned", None, 2), ("trainer", "spawned", None, 1),
        ("engine", "spawned", None, 1),
    ]  # fmt: skip


def test_datasette_knows_tables_that_exist(path: Path) -> None:
    assert set(METADATA["tables"]) <= set(columns(path, "table"))
    assert not set(METADATA["queries"]) & (set(columns(path, "table")) | set(columns(path, "view")))


def test_an_anchor_is_told_with_the_steps_that_held_it_and_stand(tmp_path: Path) -> None:
    """Step 3 was taken back, step 2 wrote nothing."""
    story = list(ANCHORS)
    for step, moved in ((1, (0.25, 0.5)), (2, ()), (3, (7.0, 7.0)), (4, (0.125, 0.75))):
        begun = next(e for e in STORY if isinstance(e, ev.StepStarted))
        done = next(e for e in STORY if isinstance(e, ev.StepCompleted))
        story += [
            msgspec.structs.replace(begun, step=step, held=("a1", "a2"), hold=1.0),
            msgspec.structs.replace(done, step=step, applied=bool(moved), held=moved),
        ]
    back = next(e for e in TAKEN_BACK if isinstance(e, ev.RollbackStarted))
    journal = write(tmp_path / "journal.db", [*story, msgspec.structs.replace(back, undone=(3,))])
    sql = "SELECT anchor, tokens, steps, last_step, moved, moved_max, retired FROM anchors ORDER BY anchor"
    assert query(journal, sql).rows == [
        ("a1", 12, 2, 4, 0.125, 0.25, None), ("a2", None, 2, 4, 0.75, 0.75, "it is too long"),
    ]  # fmt: skip


def test_of_two_ratings_of_an_answer_the_last_one_holds(path: Path) -> None:
    assert query(path, "SELECT response, rating, holds, correction, answer FROM feedback ORDER BY seq").rows == [
        ("chatcmpl-1", "good", 0, None, None), ("chatcmpl-1", "bad", 1, "so", "thus"),
    ]  # fmt: skip


def test_a_lesson_is_told_with_its_figures_and_its_answers(path: Path) -> None:
    answer = query(path, "SELECT * FROM lessons ORDER BY kind DESC")
    row, behaviour = (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    assert (behaviour["lesson"], behaviour["kind"], behaviour["state"]) == ("ask", "behaviour", "practising")
    assert (row["lesson"], row["state"], row["reason"], row["question"]) == ("L1", "given up", "no more", "Where?")
    assert (row["kind"], row["document"]) == ("document", "NOTES.md")
    figures = "bare_before, bare_before_of, told_before, told_before_of, bare_after, bare_after_of, steps, drift"
    assert query(path, f"SELECT {figures} FROM lessons WHERE lesson = 'L1'").rows == [(0, 1, 1, 1, 1, 1, 1, 0.01)]
    asked = "SELECT stage, seed, prompt, answer, passed FROM lesson_answers ORDER BY seq, answer"
    assert query(path, asked).rows == [
        ("baseline", None, "Where is it?", "Here.", 0), ("told", None, "Where is it?", "There.", 1),
        ("testing", 7, "Where is it?", "There!", 1), ("testing", None, "Where is it?", "There.", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ([], "given up"), ([ev.LessonRequested("L1", "me")], "waiting"),
        ([ev.LessonBegun("L1", Stage.TESTING, "requested")], "practising"),
        ([ev.LessonKnown("L1", 1, {}, (1, 1), 1, 0.0, 1.0, "p"), ev.LessonBegun("L1", Stage.AGAIN, "again")], "known"),
        ([ev.LessonFading("L1", "it failed", 1, (0, 1))], "fading"), ([ev.LessonReplaced("L1", "L2")], "replaced"),
        ([ev.LessonCarried("L1", "fading", steps=7), ev.LessonPractised("L1", 0, A, 9),
          ev.LessonPractised("L1", 1, "b", 9), ev.LessonPractised("L1", 2, "", 0)], "fading"),  # two in one step
    ],
)  # fmt: skip
def test_the_state_of_a_lesson_in_the_view_is_that_of_the_fold(
    tmp_path: Path, more: list[ev.Event], state: str
) -> None:
    journal = write(tmp_path / "journal.db", [*TAUGHT, *more])
    assert query(journal, "SELECT state, steps, replaced_by FROM lessons").rows == [
        (state, 8 if state == "fading" and len(more) > 1 else 1, "L2" if state == "replaced" else None)
    ]
