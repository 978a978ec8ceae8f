"""`apollod ctl review`: what it prints for programs, what the page of an example says; and the screen, driven in a real
terminal beside a real daemon."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import support.journals as journals
from support.daemon import Daemon
from support.journals import append_row, write

from apollod.cli.control.examples.deciding import SCISSORS, as_answer, with_answer
from apollod.cli.control.examples.desk import Desk, candidate, found_by, page, with_marks
from apollod.cli.control.examples.held_queue import HeldQueue, Worth, facts_since, worths
from apollod.cli.control.examples.screen import KEYS
from apollod.cli.main import main
from apollod.core import events as ev
from apollod.errors import ApolloError
from apollod.testing import daemon as driver

REVIEW = Path(__file__).parents[2] / "docs" / "review.md"
ANSWER = "Mara Quill, with her brother.\n- by night\n- by day"
LONG = "\n".join(f"line {n}" for n in range(40))
MEMORY = "<memory>Anna prefers short answers.</memory>"
A, B, C = "a" * 32, "b" * 32, "c" * 32


def chat(question: str, answer: str, *before: str) -> msgspec.Raw:
    turns = [{"role": "user", "content": text} for text in before]
    told = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return msgspec.Raw(json.dumps({"messages": [{"role": "system", "content": "Be terse."}, *turns, *told]}).encode())


def given(example: str, record: msgspec.Raw, line: int, removed: tuple[ev.Removed, ...] = ()) -> list[ev.Event]:
    accepted = ev.ExampleAccepted(example=example, record=record, source="src", line=line, removed=removed)
    return [accepted, ev.ExampleHeld(example=example, tier="bulk", reason="its source is reviewed")]


def flagged(example: str, quote: str) -> ev.SignalFlagged:
    return ev.SignalFlagged(
        signal=f"{example[:8]}{'0' * 24}", cue="correction", polarity="correction", strength=0.8, example=example,
        source="src", line=1, quote=quote,
    )  # fmt: skip


STORY = [
    ev.SourceDiscovered(source="src", path="/home/anna/.claude/projects/light/3f2a.jsonl"),
    *given(A, chat("Who keeps the light?", ANSWER, LONG, "first", "next"), 1,
           (ev.Removed(place=0, at=9, text=MEMORY, why="memory"),)),
    flagged(A, "no, I asked who"),
    *given(B, chat("tabs or spaces?", "tabs"), 2), *given(C, chat("日本語?", "はい"), 3),
]  # fmt: skip
FACTS = {
    "verdict.given": {"verdict": "bad", "by": "judge", "reason": "a list was not asked for", "quote": "- by night",
                      "better": "Mara Quill \x1b[2J"},
    "example.scored": {"with_context": -0.41, "without_context": -1.93, "divergence": 1.52,
                       "alternate": "I do not know."},
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A journal with everything that can be known of an example."""
    journal = write(tmp_path / "journal.db", STORY)
    for kind, body in FACTS.items():
        append_row(journal, kind, 1, json.dumps({"example": A, **body}), A)
    return str(journal)


def shown(path: str, id_: str, whole: bool = False) -> str:
    queue = HeldQueue()
    queue.take(facts_since(path, 0))
    worth = worths(path).get(id_, Worth()).told()
    return with_marks(page(candidate(path, id_, queue.held[id_]), journals.AT + 3 * 3600 * 10**9, whole, worth))


def test_a_page_shows_what_is_learned_what_was_stripped_and_what_speaks_for_and_against_it(path):
    assert shown(path, A).splitlines() == [
        "aaaaaaaaaaaa  bulk  /home/anna/.claude/projects/light/3f2a.jsonl:1",
        "held for 3 h: its source is reviewed",
        "comes here by its divergence",
        "== divergence 1.52 nats a token (with the context -0.41, without -1.93)",
        "== signal correction, 0.8",
        '    "no, I asked who"',
        "== verdict bad by judge: a list was not asked for",
        '    "- by night"',
        "",
        "== system",
        f"Be terse.[-{MEMORY}-]",
        "",
        "... 2 turns of the context; x shows all",
        "",
        "== user",
        "next",
        "",
        "== user",
        "Who keeps the light?",
        "",
        "== assistant, target",
        "[[Mara Quill, with her brother.",
        "- by night",
        "- by day]]",
        "",
        "== the judge would answer",
        r"Mara Quill \x1b[2J",
        "",
        "== without what was stripped the model answers",
        "I do not know.",
    ]
    assert "line 39" in shown(path, A, whole=True)
    assert "== signal" not in shown(path, B) and "[[tabs]]" in shown(path, B)


def test_the_picture_in_the_docs_is_such_a_page(tmp_path):
    id_ = "4f0c9e21b7a4" + "0" * 20
    turns = [
        ("system", "You help the keepers of the light."), ("user", "And who is her deputy?"),
        ("assistant", "Her deputy is Tom."), ("user", "No, I asked who keeps the light now."),
        ("assistant", "Mara Quill keeps it, with her brother:\n- by night the lamp\n- by day the log"),
    ]  # fmt: skip
    messages = [{"role": role, "content": text} for role, text in turns]
    messages[2]["weight"] = 0
    removed = ev.Removed(place=0, at=34, text=" <memory>No lists.</memory>", why="memory")
    record = msgspec.Raw(json.dumps({"messages": messages}).encode())
    journal = write(tmp_path / "journal.db", [STORY[0], *given(id_, record, 17, (removed,)), flagged(id_, turns[3][1])])
    facts = {
        "verdict.given": FACTS["verdict.given"] | {"verdict": "good", "reason": "it answers what was asked",
                                                   "quote": "Mara Quill keeps it"},
        "example.scored": FACTS["example.scored"],
    }  # fmt: skip
    for kind, body in facts.items():
        append_row(journal, kind, 1, json.dumps({"example": id_, **body}), id_)
    block = REVIEW.read_text().partition("`apollod ctl review` shows")[2].split("```")[1]
    head, *lines, keys = block.strip("\n").split("\n")
    assert len(lines) == 23 and head.startswith("3 held") and keys == KEYS
    assert shown(str(journal), id_).splitlines()[: len(lines)] == lines


def test_what_a_decision_tells_most_about_comes_first(path):
    for example, votes in ((B, ["good"]), (C, ["good", "bad"])):
        verdict = {"example": example, "verdict": "good" if example == B else "unsure", "votes": votes}
        append_row(Path(path), "verdict.given", 1, json.dumps(verdict), example)
    desk = Desk(path, "nowhere")
    assert desk.waiting() == [C, A, B]
    assert [desk.worth(one) for one in (C, A, B)] == ["the judge's doubt (good, bad)", "its divergence", ""]


CALLS = [{"id": "1", "type": "function", "function": {"name": "write", "arguments": {"path": "a.py", "text": "x\ny"}}}]


def test_calls_are_read_as_text(tmp_path):
    record = msgspec.Raw(json.dumps({"messages": [
        {"role": "user", "content": "go"}, {"role": "assistant", "content": "I write it.", "tool_calls": CALLS}
    ]}).encode())  # fmt: skip
    told = shown(str(write(tmp_path / "journal.db", [STORY[0], *given(A, record, 1)])), A)
    assert "[[I write it.\ncalls write\n    path: a.py\n    text:\n        x\n        y]]" in told


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"text": "some text"}, "some text"),
        ({"prompt": "p", "completion": " c\nd"}, " c\nd"),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a\n"},
                       {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "weight": 0}]}, "a"),
        ({"messages": [{"role": "user", "content": "q"},
                       {"role": "assistant", "content": "", "tool_calls": CALLS}]}, ""),
    ],
)  # fmt: skip
def test_an_answer_is_edited_as_text_and_everything_else_stays(record, answer):
    opened = as_answer(record).decode()
    text, _, below = opened.partition(f"\n{SCISSORS}")
    assert text.strip("\n") == answer and ("tool_calls" not in str(record) or "path: a.py" in below)
    again = json.loads(with_answer(record, f"better\nanswer\n{SCISSORS}\nnothing of this".encode()))
    assert (
        "better\nanswer" in json.dumps(again).replace("\\n", "\n") and json.dumps(again).count("nothing of this") == 0
    )
    if "messages" in record:
        place = next(n for n, one in enumerate(again["messages"]) if one["content"] == "better\nanswer")
        restored = [*again["messages"][:place], record["messages"][place], *again["messages"][place + 1 :]]
        assert restored == record["messages"] and record["messages"][place].get("weight") != 0


def test_an_answer_that_is_emptied_is_no_edit():
    with pytest.raises(ApolloError, match="the answer is empty"):
        with_answer({"prompt": "p", "completion": "c"}, f"\n{SCISSORS}\nbelow".encode())
    with pytest.raises(ApolloError, match="is empty"):  # all above the line is gone, its line break too
        with_answer({"prompt": "p", "completion": "c"}, f"{SCISSORS}\nbelow".encode())
    with pytest.raises(ApolloError, match="not UTF-8"):
        with_answer({"text": "c"}, b"\xff")


def test_a_filter_finds_text_in_any_script_sources_and_ids(path):
    for text, found in (("TABS", {B}), ("日本", {C}), ("anna/.CLAUDE", {A, B, C}), (A[:9], {A}), ("zebra", set())):
        assert found_by(path, text, [A, B, C]) == found
    assert found_by(path, "tabs", [A, C]) == set()


def test_programs_get_the_queue_with_its_facts(path, capsys):
    assert main(["ctl", "review", "--json", "--file", path]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in told["held"]] == [A, B, C] and told["schema_version"] == 1
    first = told["held"][0]
    assert (first["state"], first["tier"], first["waits_for"]) == ("held", "bulk", "person")
    assert [first[name][0]["example"] for name in ("signals", "verdicts", "scores")] == [A] * 3


def test_without_a_terminal_it_says_what_prints_the_queue(capsys):
    assert main(["ctl", "review", "--socket", "nowhere"]) == 2
    assert "apollod ctl example list --state held" in capsys.readouterr().err
    assert main(["ctl", "review", "--file", "copy.db"]) == 2
    assert "--json" in capsys.readouterr().err


# --- the screen ---------------------------------------------------------------------------------------------------


COLOUR = r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m"
"""what sets one, but for the default (39, 49)"""


class Terminal:
    """A program in a terminal of its own (tmux), its keys and its picture."""

    def __init__(self, root: Path, command: str, columns: int, lines: int) -> None:
        self._tmux = ["tmux", "-S", tempfile.mktemp(dir=root), "-f", "/dev/null"]
        size = ["-x", str(columns), "-y", str(lines)]
        shell = f"{command}; echo ended with $?; sleep 60"
        subprocess.run([*self._tmux, "new-session", "-d", *size, shell], check=True, timeout=120)

    def press(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True, timeout=120)

    def picture(self, *options: str) -> str:
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p", *options], capture_output=True, text=True, timeout=120
        )
        return done.stdout

    def until(self, *texts: str) -> str:
        """The picture, once all of these stand in it."""
        until = time.monotonic() + 20
        while not all(text in (seen := self.picture()) for text in texts):
            assert time.monotonic() < until, f"{texts} did not appear in:\n{seen}"
            time.sleep(0.05)
        return seen

    def until_painted(self, pattern: str) -> None:
        until = time.monotonic() + 20
        while not re.search(pattern, seen := self.picture("-e")):
            assert time.monotonic() < until, f"{pattern} did not appear in:\n{seen!r}"
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, timeout=120)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One without a model: it decides all the same. The tests below follow each other."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    root = tmp_path_factory.mktemp("review")
    made = Daemon(root, root / "no-model")
    (root / "state").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:  # else nobody decided for too long
        patch.setattr(journals, "AT", time.time_ns() - 3 * 3600 * 10**9)
        write(root / "state" / "journal.db", STORY)
    driver.Daemon.start(made)  # without a trainer there is nothing to import beforehand
    made.wait(lambda status: status["error"], "up", 180)
    yield made
    if made.alive():
        made.kill()


@pytest.fixture
def review(daemon: Daemon) -> Iterator[Callable[..., Terminal]]:
    """Opens the screen."""
    editor = daemon.root / "editor"
    editor.write_text("""#!/bin/sh\nsed -i 's/^tabs/spaces/' "$1"\n""")
    editor.chmod(0o700)
    opened: list[Terminal] = []

    def open_(env: str, columns: int, lines: int) -> Terminal:
        command = f"env EDITOR={editor} {env} {sys.executable} -m apollod ctl review --config {daemon.config}"
        opened.append(Terminal(daemon.root, command, columns, lines))
        return opened[-1]

    yield open_
    for terminal in opened:
        terminal.close()


def test_a_small_terminal_without_colour(review):
    terminal = review("TERM=dumb", 60, 16)
    picture = terminal.until("3 held", "1 of 3", f"Be terse.[-{MEMORY[:20]}", "u undo", "q quit", "more below")
    assert len(picture.splitlines()) <= 16
    terminal.press("End")
    terminal.until("[[Mara Quill, with her brother.", "- by day]]")
    terminal.press("?")
    terminal.until("[[ ]] is learned, [- -] was stripped before", "Any key goes back")
    terminal.press("s")
    terminal.until("1 of 3", "[[Mara Quill")
    terminal.press("/")
    terminal.until("text, source or id")
    terminal.until_painted(r"\x1b\[[0-9;]*7mt")  # the cursor, which comes with the focus, a moment after the text
    assert not re.search(COLOUR, terminal.picture("-e"))
    terminal.press("-l", "TABS")
    terminal.press("Enter")
    terminal.until("[[tabs]]", "1 of 1 ('TABS')")
    terminal.press("C-c")
    terminal.until("ended with 0")


def test_keys_decide_and_what_others_decide_is_shown(daemon, review):
    def states() -> dict[str, str]:
        return dict(daemon.query("SELECT id, state FROM examples"))

    terminal = review("TERM=xterm-256color", 80, 24)
    picture = terminal.until(
        "3 held",
        "1 of 3",
        "signal correction, 0.8",
        "bulk  /home/anna/.claude/projects/light/3f2a.jsonl:1",
        "held for 3 h",
    )
    assert len(picture.splitlines()) == 24 and max(map(len, picture.splitlines())) <= 80
    assert "\x1b[1mMara Quill" in terminal.picture("-e") and "9m<memory>" in terminal.picture("-e")
    terminal.press("a")
    terminal.until("2 held   here: 1 approved", f"approved {A[:12]}; u takes it back", "tabs or spaces?")
    terminal.press("e")
    terminal.until("1 held   here: 1 approved, 1 edited", f"is learned instead of {B[:12]}", "日本語?")
    (into,) = set(states()) - {A, B, C}
    assert states() == {A: "pending", B: "edited", C: "held", into: "pending"}
    terminal.press("u")
    terminal.until("2 held   here: 1 approved", f"{B[:12]} waits again", "tabs or spaces?")
    assert states() == {A: "pending", B: "held", C: "held", into: "declined"}
    daemon.ctl("example", "decline", B)
    terminal.until("1 held", "declined it meanwhile", "日本語?")
    terminal.press("e")
    terminal.until("nothing was changed in it")
    terminal.press("l")
    terminal.until("words that are kept beside")
    terminal.press("-l", "terse, Japanese")
    terminal.press("Enter")
    terminal.until("labels terse, Japanese")
    terminal.press("d")
    terminal.until(
        "0 held", "Nothing waits for a decision", 'review = "hold"', "apollod ctl example hold", "mode is off"
    )
    assert ("terse, Japanese",) in daemon.query(f"SELECT reason FROM reviews WHERE example = '{C}'")
    terminal.press("u")
    terminal.until("1 held", f"{C[:12]} waits again")
    daemon.kill()
    terminal.press("a")
    assert "Traceback" not in terminal.until("no apollod answers", "1 held")
    terminal.press("q")
    terminal.until("ended with 0")
    assert states()[C] == "held"
    assert daemon.ctl("review", "--json", check=False).returncode == 0


def test_what_is_written_for_a_part_of_a_long_answer_is_learned_whole() -> None:
    turns = [{"content": "Hi", "role": "user"}, {"content": "a long one", "part": [1, 3], "role": "assistant"}]
    again = json.loads(with_answer({"messages": turns}, f"short\n{SCISSORS}\n".encode()))
    assert again["messages"][1] == {"content": "short", "role": "assistant"}
