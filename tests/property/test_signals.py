"""However a log is cut, settled and gone on with after restarts: the same signals, each once. Two engines of regular
expressions find the same words."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agent_logs import claude_record
from support.log_samples import codex as rollout

from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.record_stream import lines_of
from apollod.core import events as ev
from apollod.core.inputs import Batch
from apollod.core.rules.intake.policy import intake_events
from apollod.curation.conversation import Moment, Remark
from apollod.curation.formats import claude_code, codex
from apollod.curation.formats.reader import Cursor, Folded, Limits, Reader
from apollod.curation.moments import Rules
from apollod.curation.signals import complaints

RULES = Rules(models=("*",))
QUARANTINE = Quarantine(Path(tempfile.gettempdir()))  # nothing is bad in these logs
TURNS = ("plain", "correction", "undo", "check", "failed check", "retry", "refusal", "interrupt", "rollback")
PROMPTS = {"correction": "no, use pnpm", "undo": "please revert that"}


def of_codex(turns: list[str]) -> list[bytes]:
    """A rollout; each turn has its own words, so that no answer repeats another."""
    number, lines = itertools.count(), [rollout.META]

    def ran(command: str, output: str) -> list[bytes]:
        call = f"c{next(number)}"
        arguments = msgspec.json.encode({"cmd": command}).decode()
        return [
            rollout.item("function_call", name="exec_command", arguments=arguments, call_id=call),
            rollout.item("function_call_output", call_id=call, output=output),
        ]

    for n, turn in enumerate(turns):
        lines.append(rollout.said("user", f"{PROMPTS.get(turn, 'go on')} {n}"))
        lines.append(rollout.said("assistant", f"I look {n}"))
        lines += {
            "check": ran(f"pytest {n}", "Exit code: 0\n3 passed"),
            "failed check": ran(f"pytest {n}", "Exit code: 1\n1 failed"),
            "retry": [*ran(f"ls {n} a", "Exit code: 2\nno such file"), *ran(f"ls {n} b", "Exit code: 0\nb")],
            "refusal": ran(f"rm {n}", "exec command rejected by user"),
        }.get(turn, [])
        lines.append(rollout.said("assistant", f"Done {n}"))
        lines += [rollout.event("turn_aborted", reason="interrupted")] if turn == "interrupt" else []
        lines += [rollout.event("thread_rolled_back", num_turns=1)] if turn == "rollback" else []
    return lines


def of_claude(turns: list[str]) -> list[bytes]:
    """A session of Claude Code, as above; a rollback is a branch there, which is no signal."""
    lines, last = list[bytes](), ""
    for n, turn in enumerate(turns):
        begin = last
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"pytest {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": "1 failed", "is_error": True}
        said: list[tuple[str, object]] = [("user", f"{PROMPTS.get(turn, 'go on')} {n}"), ("assistant", f"I look {n}")]
        said += [("assistant", [call]), ("user", [result])] if turn == "failed check" else []
        said += [("assistant", f"Done {n}")]
        said += [("user", "[Request interrupted by user]")] if turn == "interrupt" else []
        for m, (role, content) in enumerate(said):
            lines.append(claude_record(f"u{n}-{m}", last, role, content))
            last = f"u{n}-{m}"
        last = begin if turn == "rollback" else last
    return lines


def goes_on(lines: list[bytes], at: int) -> bool:
    """True if an answer has parts on both sides of line `at`."""
    before, after = lines[at - 1], b"".join(lines[at : at + 1])
    return b"assistant" in before and (b"assistant" in after or b'"function_call"' in after)


class Life:
    """A reader and what the journal knows; every item is recorded at once."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.cursor = reader, Cursor()
        self.learners: dict[str, str] = {}
        self.signals: dict[str, ev.SignalFlagged] = {}

    def take(self, folded: Folded) -> None:
        self.cursor = folded.cursor
        for item in folded.items:
            assert isinstance(item, Moment | Remark)
            lines = tuple(lines_of([item], QUARANTINE, RULES, Counter()))
            batch = Batch(source="s", path="/s", offset=0, line=item.line, lines=lines)
            for event in intake_events(batch, set(self.learners.values()), self.learners, flagged=self.signals):
                if isinstance(event, ev.ExampleAccepted):
                    self.learners |= dict.fromkeys(event.responses, event.example)
                elif isinstance(event, ev.SignalFlagged):
                    assert event.signal not in self.signals
                    self.signals[event.signal] = event

    def read(self, log: bytes, end: bool = False) -> None:
        while True:
            before = self.cursor
            folded = self.reader.fold(before, log[before.offset :], end, Limits(items=3))
            self.take(folded)
            if folded.cursor == before and not folded.items:
                return


@settings(max_examples=60, deadline=None)
@given(
    made=st.sampled_from([(codex.READER, of_codex), (claude_code.READER, of_claude)]),
    turns=st.lists(st.sampled_from(TURNS), min_size=1, max_size=6),
    data=st.data(),
)
def test_the_same_signals_each_once(
    made: tuple[Reader, Callable[[list[str]], list[bytes]]], turns: list[str], data: st.DataObject
) -> None:
    reader, write = made
    lines = write(turns)
    log = b"".join(lines)
    at_once, in_pieces = Life(reader), Life(reader)
    at_once.read(log, end=True)
    # where the program pauses: between lines, but where a result is awaited or all was said, for longer than settles.
    # An answer that is settled before its last part is two answers, the first of which is no correction's.
    for at in sorted(data.draw(st.lists(st.integers(1, len(lines)), max_size=6))):
        in_pieces.read(b"".join(lines[:at]))
        if data.draw(st.booleans()) and not goes_on(lines, at):
            in_pieces.take(reader.settle(in_pieces.cursor))
        if data.draw(st.booleans()):
            bare = msgspec.structs.replace(in_pieces.cursor, memory=None)
            in_pieces.cursor = reader.recall(bare, [log[: bare.offset]], Limits())
    in_pieces.read(log, end=True)
    said = {(e.signal, e.records, e.quote) for e in at_once.signals.values()}
    assert {(e.signal, e.records, e.quote) for e in in_pieces.signals.values()} == said
    for event in in_pieces.signals.values():
        assert event.example == in_pieces.learners.get(event.answer, "")
    assert all(event.example for event in at_once.signals.values() if event.cue != "rewound")


def test_sessions_of_the_property_have_every_kind() -> None:
    life = Life(codex.READER)
    life.read(b"".join(of_codex([*TURNS, "plain"])), end=True)
    kinds = {"correction", "undo", "check", "tool-error", "retried", "refused", "interrupted", "rewound"}
    assert {event.cue for event in life.signals.values()} == kinds


WORDS = (
    "it", "still", "doesn't", "does not", "work", "works", "should", "also", "so", "that", "why", "did", "you", "pick",
    "not", "i", "can't", "see", "the", "error", "errors", "is", "wrong", "when", "click", "nothing", "happens", "again",
    "instead", "no funciona", "nicht", "geht", "ne marche pas", "\n", ".", ",", "!", "?", "undo", "missing", "404",
    "expected", "but", "got", "now", "broken", "why can't you", "after i ran", "they aren't here",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
def test_both_engines_find_the_same_complaint(said: str) -> None:
    found = complaints._LATIN.search(said)
    assert complaints.reported_at(said) == (found.start() if found else -1)
