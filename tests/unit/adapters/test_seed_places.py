"""Seeds from files, directories and views of the journal; what cannot be read is passed over."""

import os
from pathlib import Path

import msgspec
import pytest
from support.journals import write

from apollod.adapters import seed_places
from apollod.adapters.journal.journal_reader import query
from apollod.adapters.seed_places import FILE_BYTES_MAX, SEEDS_MAX, place_problem, read_seeds
from apollod.core import events as ev
from apollod.errors import SeedsUnreadable


def texts(tmp_path: Path, *places: str) -> list[str]:
    return [seed.text for seed in read_seeds(places, tmp_path / "journal.db").found]


def file(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_directory_is_read_in_the_order_of_its_names_and_nothing_hidden(tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "deep/er/c", ".hidden", ".git/config", "deep/.swp"):
        file(tmp_path / "notes" / name, f"text of {name}")
    file(tmp_path / "notes" / "r.jsonl", '{"prompt": "p", "completion": "c"}\n')
    seeds = read_seeds([str(tmp_path / "notes")], tmp_path / "none").found
    assert [seed.text for seed in seeds] == ["text of a.txt", "text of b.md", "p\nc", "text of deep/er/c"]
    assert seeds[0].place == f"{tmp_path}/notes/a.txt:1"


def test_links_lead_nowhere_and_pipes_are_not_opened(tmp_path: Path) -> None:
    secret = file(tmp_path / "outside" / "secret.txt", "outside")
    notes = file(tmp_path / "notes" / "a.txt", "inside").parent
    (notes / "link.txt").symlink_to(secret)
    (notes / "directory").symlink_to(secret.parent)
    os.mkfifo(notes / "pipe.txt")
    found = read_seeds([str(notes)], tmp_path / "none")
    assert [seed.text for seed in found.found] == ["inside"]
    assert found.skipped == {"a file is a link": 1, "something is no file": 1}
    assert texts(tmp_path, str(notes / "link.txt")) == ["outside"], "somebody named the link itself"


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    file(notes / "good.md", "good")
    file(notes / "again.md", "good\n")
    file(notes / "empty.md", " \n")
    file(notes / "enormous.md", "x" * (FILE_BYTES_MAX + 1))
    file(notes / "picture.png", b"\x89PNG\0\0")
    file(notes / "latin.txt", b"\xfcber")
    file(notes / "r.jsonl", "prose\n")
    found = read_seeds([str(notes), str(tmp_path / "gone.md"), "view:none"], tmp_path / "none")
    assert [seed.text for seed in found.found] == ["good"]
    assert found.skipped == {
        "a file is empty": 1, "a file is larger than 1 MiB": 1, "a file is no text": 1, "a file is no UTF-8 text": 1,
        "a line is no JSON": 1, "a file cannot be read: No such file or directory": 1,
        "view:none cannot be read: there is no such view": 1,
    }  # fmt: skip


def test_nothing_at_all_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        SeedsUnreadable, match=r"no seed in .*gone, .*empty \(.*No such file.*a file is empty\)"
    ) as error:
        read_seeds([str(tmp_path / "gone"), str(file(tmp_path / "empty", ""))], tmp_path / "none")
    assert "seeds" in error.value.hint
    assert read_seeds([], tmp_path / "none").found == ()


def test_a_directory_that_vanishes_while_it_is_read_is_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = file(tmp_path / "notes" / "a.md", "first").parent
    file(notes / "b.md", "second")

    def vanishing(*given: object) -> bytes:
        data = read(*given)
        (notes / "b.md").unlink()
        return data

    read = seed_places._data
    monkeypatch.setattr(seed_places, "_data", vanishing)
    found = read_seeds([str(notes)], tmp_path / "none")
    assert [seed.text for seed in found.found] == ["first"] and sum(found.skipped.values()) == 1


def test_everything_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a large place leaves room for a small one."""
    many = file(tmp_path / "many.jsonl", "".join(f'"seed {number}"\n' for number in range(SEEDS_MAX * 2)))
    few = file(tmp_path / "few.md", "few")
    found = read_seeds([str(many), str(few)], tmp_path / "none")
    assert len(found.found) == SEEDS_MAX and found.found[1].text == "few"
    assert list(found.skipped) == [f"there are more than {SEEDS_MAX} seeds"]
    for number in range(6):
        file(tmp_path / "notes" / f"{number}", f"note {number}")
    monkeypatch.setattr(seed_places, "FILES_MAX", 4)
    found = read_seeds([str(tmp_path / "notes")], tmp_path / "none")
    assert len(found.found) == 4 and found.skipped == {"a directory holds more than 4 files": 1}
    monkeypatch.setattr(seed_places, "ALL_BYTES_MAX", 15)
    assert texts(tmp_path, str(tmp_path / "notes")) == ["note 0", "note 1"]
    file(tmp_path / "deep" / "/".join("d" * 22) / "x", "deep")
    file(tmp_path / "deep" / "y", "high")
    found = read_seeds([str(tmp_path / "deep")], tmp_path / "none")
    assert [seed.text for seed in found.found] == ["high"] and "levels deep" in next(iter(found.skipped))


def test_secrets_are_not_dreamt_of(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "aB3dE6gH9j" * 9
    plain = file(tmp_path / "a.md", f"The key is {key} for now.")
    line = file(tmp_path / "b.jsonl", msgspec.json.encode({"text": f"line\n{key}"}))
    found = texts(tmp_path, str(plain), str(line))
    assert len(found) == 2 and all("[redacted" in text and key not in text for text in found)


# --- views -----------------------------------------------------------------------------------------------------------


def accepted(example: str, record: bytes, source: str = "src") -> ev.ExampleAccepted:
    return ev.ExampleAccepted(example=example, record=msgspec.Raw(record), source=source, line=1)


def flagged(number: int, quote: str, example: str = "") -> ev.SignalFlagged:
    return ev.SignalFlagged(signal=f"s{number}", cue="correction", polarity="good", strength=1.0, example=example,
                            source="src", line=1, quote=quote)  # fmt: skip


TALK = b'{"messages":[{"content":"Open it.","role":"user"},{"content":"I open it.","role":"assistant"}]}'


@pytest.fixture
def story() -> list[ev.Event]:
    return [
        accepted("aa", TALK),
        accepted("bb", b'{"completion":"done","prompt":"do"}', source="dream:d1"),
        flagged(1, "You should have asked first.", "aa"),
        flagged(2, "Too long!"),
        ev.FeedbackGiven(response="r", rating="bad", by="ctl", answer="Yes.", comment="curt", correction="Yes, I do."),
        ev.VerdictGiven(verdict="bad", example="aa", quote="I open it", reason="It did not ask."),
        ev.VerdictGiven(verdict="bad", dream="d1", quote="held out", reason="r"),
        ev.VerdictGiven(verdict="bad", case="c", quote="planted", reason="r"),
        ev.VerdictGiven(verdict="good", example="aa", quote="fine", reason="r"),
    ]


def test_views_of_the_journal_give_what_is_newest_first(tmp_path: Path, story: list[ev.Event]) -> None:
    write(tmp_path / "journal.db", story)
    found = read_seeds(["view:signals"], tmp_path / "journal.db").found
    assert [(seed.text, seed.place) for seed in found] == [
        ("user: Too long!", "view:signals:4"),
        ("assistant: I open it.\nuser: You should have asked first.", "view:signals:3"),
    ]
    assert texts(tmp_path, "view:feedback") == [
        "assistant: Yes.\nwhat somebody said of it: curt\nwhat should have been said: Yes, I do."
    ]
    assert texts(tmp_path, "view:verdicts") == ["assistant: I open it\nwhat is wrong with it: It did not ask."]
    assert texts(tmp_path, "view:examples") == ["user: Open it.\nassistant: I open it."]


def test_a_seed_is_as_old_as_its_file_or_its_event(tmp_path: Path, story: list[ev.Event]) -> None:
    note = file(tmp_path / "notes" / "a.md", "a note")
    lines = file(tmp_path / "notes" / "r.jsonl", '{"text": "a record"}\n')
    os.utime(note, ns=(5, 5))
    os.utime(lines, ns=(6, 6))
    write(tmp_path / "journal.db", story)
    views = ["view:signals", "view:feedback", "view:verdicts", "view:examples"]
    found = read_seeds([str(tmp_path / "notes"), *views], tmp_path / "journal.db").found
    recorded = dict(query(tmp_path / "journal.db", "SELECT seq, at_ns FROM events", 100, 5.0).rows)
    ages = {seed.place: seed.at_ns for seed in found}
    assert ages.pop(f"{note}:1") == 5 and ages.pop(f"{lines}:1") == 6
    assert ages and ages == {place: recorded[int(place.rpartition(":")[2])] for place in ages}
    assert {place.rpartition(":")[0] for place in ages} == set(views)


def test_a_view_without_rows_is_no_failure_and_one_with_many_gives_the_newest(tmp_path: Path) -> None:
    journal = write(tmp_path / "journal.db", [flagged(number, f"signal {number}") for number in range(250)])
    assert read_seeds(["view:feedback"], journal) == ((), {})
    found = [seed.text for seed in read_seeds(["view:signals"], journal).found]
    assert len(found) == 200 and found[0] == "user: signal 249"
    with pytest.raises(SeedsUnreadable, match="view:signals cannot be read"):
        read_seeds(["view:signals"], tmp_path / "none.db")


def test_a_place_that_cannot_hold_seeds_is_said_at_once() -> None:
    assert "there is no view:steps, but view:signals, " in place_problem("view:steps")
    assert "is no path" in place_problem(" ") and "is no path" in place_problem("a\0b")
    assert [place_problem(place) for place in ("view:signals", "notes/", "view")] == [""] * 3
