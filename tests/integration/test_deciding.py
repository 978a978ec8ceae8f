"""What people decide about examples with `ctl example approve|decline|hold|edit`: what counts, and what is refused in
which words; and which examples wait for that, by the rule of their source."""

import json
import tempfile
from pathlib import Path

import msgspec
import pytest
from support.childless import reached
from support.journals import STORY, TAKEN_BACK, A, B, C, D, E, F, accepted, write
from support.source_life import live, until

from apollod.adapters.journal import journal_reader
from apollod.adapters.sources.record_stream import batch_of_lines
from apollod.cli.control import ctl
from apollod.cli.control.examples.desk import Desk, candidate
from apollod.cli.control.examples.held_queue import Decided, Waits
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.core.state import State
from apollod.errors import ApolloError
from apollod.supervisor.config import Config, load_config


def chat(answer: str) -> dict:
    return {"messages": [{"role": "user", "content": "tabs?"}, {"role": "assistant", "content": answer}]}


QUARANTINE = Path(tempfile.gettempdir())  # the line is good
G = batch_of_lines([json.dumps(chat("no")).encode()], "t", QUARANTINE).lines[0].example
H, WITHDRAWN = "8" * 32, "9" * 32
HELD = Waits("bulk", "", "person", "", 0, 0)
RUNS = [ev.StepStarted(step=6, parent=0, example=F, digest="d", lr=1e-5, window=1)]
GIVEN = [
    ev.ExampleAccepted(example=G, record=msgspec.Raw(json.dumps(chat("no")).encode()), source="src", line=9),
    ev.ExampleHeld(example=G, tier="bulk", reason="its source is reviewed"),
    accepted(H, 10), accepted(WITHDRAWN, 11), ev.ExampleWithdrawn(examples=(WITHDRAWN,), by="t"),
]  # fmt: skip
"""A waits, B was rejected, C wrote nothing, the step of D could not be run, that of E was taken back, F is being
learned, G is held, H waits."""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    made = reached(tmp_path, monkeypatch)
    monkeypatch.setattr(ctl, "journal_path", lambda args: str(made.journal_path))
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    write(made.journal_path, [*STORY, *TAKEN_BACK, *RUNS, *GIVEN])
    return made


def example(*words: str) -> int:
    return main(["ctl", "example", *words, "--socket", "unused"])


def state(config: Config, id_: str) -> str:
    ((found,),) = journal_reader.query(config.journal_path, f"SELECT state FROM examples WHERE id = '{id_}'").rows
    return str(found)


def test_decisions_are_recorded_and_the_last_one_counts(config, capsys):
    assert example("decline", G[:6], D, "--reason", "too short") == 0
    assert (state(config, G), state(config, D)) == ("declined", "declined")
    assert "2 declined" in capsys.readouterr().out
    assert example("approve", G) == example("hold", G) == example("approve", G, H, "--json") - 1 == 0
    told = capsys.readouterr()
    answer = json.loads(told.out.splitlines()[-1])
    assert (answer["approved"], [one["example"] for one in answer["refused"]]) == ([G], [H])
    assert "it waits to be learned already" in told.err and state(config, G) == "pending"
    assert main(["ctl", "why", G, "--file", str(config.journal_path)]) == 0
    assert "approved by anna" in capsys.readouterr().out


REFUSED = [
    ("approve", C, "its step wrote nothing"), ("approve", E, "its step was taken back; `apollod ctl relearn`"),
    ("approve", B, "it cannot be learned from"), ("approve", A, "it waits to be learned already"),
    ("approve", F, "it is being learned now"), ("decline", F, "it is being learned now"),
    ("hold", F, "it is being learned now"), ("hold", G, "it waits for a decision already"),
    ("approve", WITHDRAWN, "it was withdrawn; `apollod ctl relearn`"), ("decline", E, "its step was taken back"),
    ("approve", "abcdef", "no example begins with abcdef"),
]  # fmt: skip


def test_a_decision_that_cannot_be_done_is_refused_in_words_and_changes_nothing(config, capsys):
    before = journal_reader.query(config.journal_path, "SELECT max(seq) FROM events").rows
    for choice, id_, words in REFUSED:
        assert example(choice, id_) == 1, (choice, id_)
        assert words in capsys.readouterr().err
    assert journal_reader.query(config.journal_path, "SELECT max(seq) FROM events").rows == before


def test_what_was_trained_is_refused_with_the_way_back(tmp_path, monkeypatch, capsys):
    made = reached(tmp_path, monkeypatch)
    monkeypatch.setattr(ctl, "journal_path", lambda args: str(made.journal_path))
    write(made.journal_path, STORY)
    for choice in ("approve", "decline", "hold"):
        assert example(choice, A) == 1
        assert "it was learned; `apollod ctl example forget` takes it out" in capsys.readouterr().err
    assert example("edit", A, "--file", written(tmp_path, chat("spaces"))) == 1
    assert "cannot be edited: it was learned" in capsys.readouterr().err


def written(root: Path, record: object) -> str:
    file = root / "written.json"
    file.write_text(record if isinstance(record, str) else json.dumps(record, indent=4))
    return str(file)


def test_what_was_written_is_learned_instead(config, tmp_path, capsys):
    assert example("edit", G, "--file", written(tmp_path, chat("spaces")), "--json") == 0
    into = json.loads(capsys.readouterr().out.splitlines()[-1])["into"]
    assert (state(config, G), state(config, into)) == ("edited", "pending")
    accepted_ = journal_reader.accepted(config.journal_path, into)
    assert accepted_ is not None and json.loads(bytes(accepted_.record)) == chat("spaces")
    assert (accepted_.source, accepted_.tier) == (f"edit:{G}", "direct")
    assert example("approve", G) == 1
    assert "another one is learned instead; `apollod ctl example hold` takes that decision back (anna decided)" in (
        capsys.readouterr().err
    )
    assert example("hold", G) == 0 and state(config, G) == "held"


NO_EDIT = [
    (chat("no"), "nothing was changed in it"), (chat(" "), "message 2 is an empty assistant turn"),
    (chat("no")["messages"], "the line is a JSON array"), ("{", "not JSON"), ("", "not JSON"),
    ({"messages": chat("no")["messages"][:1]}, "no assistant turn"),
]  # fmt: skip


def test_an_edit_that_is_none_is_refused_and_the_example_waits_on(config, tmp_path, capsys):
    for record, words in NO_EDIT:
        assert example("edit", G, "--file", written(tmp_path, record)) == 1, words
        told = capsys.readouterr().err
        assert words in told and "what you wrote is in" not in told
    assert state(config, G) == "held"


def test_an_edit_that_is_another_example_names_it(config, tmp_path, capsys):
    assert example("edit", G, "--file", written(tmp_path, chat("spaces")), "--json") == 0
    into = json.loads(capsys.readouterr().out.splitlines()[-1])["into"]
    assert example("edit", D, "--file", written(tmp_path, chat("spaces"))) == 1
    assert f"the example {into}, which the journal has already: it is pending" in capsys.readouterr().err
    assert state(config, D) == "held"


EDITORS = [
    ("false", "false ended with 1; nothing was changed; $EDITOR names another one"),
    ("no-such-editor", "no-such-editor ended with 127"), ("true", "nothing was changed in it; approve it"),
    ("sed -i s/^no//", "the answer is empty"), ("printf '\\377' >", "not UTF-8"), ("rm", "example.md"),
]  # fmt: skip
OF_RECORDS = [
    ("sed -i s/no//", "message 2 is an empty assistant turn"),
    ("echo x >", "not JSON"),
    ("rm", "example.json"),
]


def test_an_editor_that_fails_or_changes_nothing(config, capsys, monkeypatch):
    for editor, words in EDITORS:
        monkeypatch.setenv("EDITOR", editor)
        assert example("edit", G) == 1, editor
        assert words in capsys.readouterr().err
    for editor, words in OF_RECORDS:
        monkeypatch.setenv("EDITOR", editor)
        assert example("edit", G, "--record") == 1, editor
        assert words in capsys.readouterr().err
    assert state(config, G) == "held"


def test_what_was_written_in_an_editor_is_not_lost_when_it_is_refused(config, capsys, monkeypatch):
    monkeypatch.setenv("VISUAL", "sed -i s/assistant/somebody/")
    assert example("edit", G, "--record") == 1
    told = capsys.readouterr().err
    file = Path(told.partition("what you wrote is in ")[2].partition(",")[0])
    assert "somebody" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    monkeypatch.setenv("VISUAL", "sed -i s/^no/spaces/")
    assert example("edit", G) == 0 and state(config, G) == "edited"


def test_two_reviewers_do_not_decide_twice_and_take_back_only_what_still_stands(config, monkeypatch):
    one, another = (Desk(str(config.journal_path), "unused") for _ in range(2))
    assert one.waiting() == [D, G] == another.waiting()
    approved = one.decide(G, "approve")
    with pytest.raises(ApolloError, match=r"left as it is: it waits to be learned already \(anna decided\)"):
        another.decide(G, "decline")
    assert [(change.example, change.how, change.by) for change in another.changes()] == [(G, "approved", "anna")]
    monkeypatch.setattr("getpass.getuser", lambda: "ben")
    assert example("decline", G) == 0
    with pytest.raises(ApolloError, match=r"it was declined \(ben decided\)"):
        one.undo(approved)
    assert state(config, G) == "declined"
    declined = another.decide(D, "decline")
    assert another.undo(declined) and state(config, D) == "held"


def test_an_edit_is_taken_back_until_what_was_written_is_being_learned(config, monkeypatch):
    desk = Desk(str(config.journal_path), "unused")
    spoiled = json.dumps(chat(" ")).encode()
    shown = candidate(str(config.journal_path), G, HELD)
    with pytest.raises(ApolloError, match="empty assistant turn") as caught:
        desk.edit(shown, spoiled, whole=True)
    assert caught.value.hint.endswith("E goes on with what you wrote")
    monkeypatch.setenv("EDITOR", 'sed -i \'s/" "/"spaces"/\'')
    written = desk.write(shown, whole=True)
    assert b"spaces" in written and b"messages" in written
    edited = desk.edit(shown, written, whole=True)
    assert desk.undo(edited) and (state(config, G), state(config, edited.into)) == ("held", "declined")
    assert example("decline", G) == 0 and example("approve", edited.into) == 0
    with pytest.raises(ApolloError, match=f"{G[:12]} was left as it is: it was declined"):
        desk.undo(Decided(G, "edited", edited.into))
    assert (state(config, G), state(config, edited.into)) == ("declined", "pending")
    assert example("hold", G) == 0
    edited = desk.edit(shown, b"either\n", whole=False)
    write(config.journal_path, [ev.StepStarted(step=7, parent=0, example=edited.into, digest="d", lr=1e-5, window=1)])
    with pytest.raises(ApolloError, match=f"{edited.into[:12]} was left as it is: it is being learned now"):
        desk.undo(edited)
    assert state(config, G) == "edited"


CONFIG = """\
[state]
dir = "{root}/state"
[model]
path = "{root}/model"
[inbox]
path = "{root}/inbox"
review = "hold"
[[watch]]
path = "{root}/some"
models = ["*"]
review = "sample:0.25"
[[watch]]
path = "{root}/none"
models = ["*"]
"""


def test_the_rule_of_a_source_holds_its_examples(tmp_path):
    (tmp_path / "apollod.toml").write_text(CONFIG.format(root=tmp_path))
    (tmp_path / "state").mkdir()
    for name in ("inbox", "some", "none"):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"prompt": f"{name} {n}", "completion": " yes"}) for n in range(100)]
        (tmp_path / name / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    config = load_config(tmp_path / "apollod.toml")

    async def all_read(state: State) -> None:
        await until(lambda: state.intake.counts.accepted == 300)

    live(config, all_read)
    sql = "SELECT path, sum(state = 'held') FROM examples JOIN sources USING (source) GROUP BY path"
    found = journal_reader.query(config.journal_path, sql).rows
    held = {Path(path).parent.name: held for path, held in found}
    assert (held["inbox"], held["none"]) == (100, 0) and 10 < held["some"] < 40
