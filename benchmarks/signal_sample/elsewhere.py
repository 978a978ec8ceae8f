"""Moments from other people's logs: their places, their labels, and how to read them there.

`elsewhere.tsv` contains none of their texts. It names repositories with commit and agent, files in their history (git's
blob ids), and the moments in these: `turn`, the text that a person typed after an answer (label, language, line, digest
of the text), or `outcome`, a shell command with its output (label, line, digest of both). Labels were set before cues
were run on any of it; `?` marks undecidable ones, which are left out of figures. A moment whose digest is even is used
for tuning cues, the others are held out.

`second`, `third` and `fourth` are turns of other people. Each round was labelled before the cues read it; after one
measurement its errors were looked at and the cues changed. So only the last round is unseen by the present cues; the
figures of the earlier ones' first measurements stand in docs/benchmarks.

A repository is expected as DIR/OWNER+NAME, cloned with its whole history, or as DIR/OWNER+NAME/repo.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from apollod.curation.conversation import Moment, Remark, Said, Session, Signal
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits
from apollod.curation.formats.table import READERS
from apollod.curation.formats.turns import form
from apollod.curation.signals.cues import flags
from apollod.curation.signals.flag import answer_before, call_of
from apollod.curation.signals.tool_results import command_of

LABELS = Path(__file__).parent / "elsewhere.tsv"
ROUNDS = ("second", "third", "fourth")
DIGEST = 16  # hex digits
REJECTS = ("correction", "undo")
"""kinds for a person who was not content; either one counts as found"""

_TURN = re.compile(r"^_\*\*(User|Assistant|Agent|)(?: ?[^*\n]*)?\*\*_[^\n]*$", re.MULTILINE)
_SHELL = re.compile(r"```bash\n(.*?)\n```\s*\n+```(?:\w*)\n(.*?)\n```", re.DOTALL)
_READERS = {reader.name: reader for reader in READERS}


class Marked(NamedTuple):
    """A labelled moment of another repository."""

    kind: str
    """`turn` or `outcome`"""
    label: str
    """for turns `correction`, `undo`, `-` or `?`; for outcomes `good`, `bad` or `-`"""
    language: str
    repository: str
    agent: str
    blob: str
    digest: str
    round: str = ""
    """one of ROUNDS; "" for the first round"""

    @property
    def half(self) -> str:
        """The name of the part of the sample to which it belongs."""
        if self.round:
            return f"elsewhere_{self.round}"
        return "elsewhere_held_out" if int(self.digest[-1], 16) % 2 else "elsewhere_tuning"


class Repository(NamedTuple):
    """A repository with moments."""

    name: str
    commit: str
    agent: str


def marked() -> list[Marked]:
    """All labelled moments."""
    found, blob = [], ""
    repositories: list[Repository] = []
    for line in LABELS.read_text().splitlines():
        word, *rest = line.split("\t")
        if word == "repository":
            repositories.append(Repository(*rest))
        elif word == "blob":
            blob = rest[0]
        else:
            label, language, _, digest = rest
            of = repositories[-1]
            round = word if word in ROUNDS else ""
            kind = "turn" if round else word
            found.append(Marked(kind, label, language, of.name, of.agent, blob, digest, round))
    return found


def moments(directory: Path, half: str) -> tuple[list[tuple[Marked, Moment]], list[str]]:
    """The labelled moments of a half with their contents, and descriptions of the missing ones."""
    wanted = [one for one in marked() if one.half == half]
    found, missing = [], Counter[str]()
    read: dict[tuple[str, str], dict[str, Moment]] = {}
    for one in wanted:
        where = one.repository, one.blob
        if where not in read:
            read[where] = dict(_read(directory, one))
        moment = read[where].get(one.digest)
        if moment is None:
            missing[one.repository] += 1
        else:
            found.append((one, moment))
    return found, [f"{name}: {times} moments ({half})" for name, times in sorted(missing.items())]


def shown(one: Marked, moment: Moment) -> tuple[str, ...]:
    """The result of the cues for a moment, in the words of its label."""
    said = flags(moment)
    if one.kind == "turn":
        return tuple(flag.kind for flag in said if flag.kind in REJECTS)
    return tuple(flag.polarity for flag in said if flag.kind == "check")


def _read(directory: Path, one: Marked) -> Iterator[tuple[str, Moment]]:
    """All moments of a file, with their digests."""
    place = directory / one.repository.replace("/", "+", 1)
    if (place / "repo").is_dir():
        place = place / "repo"
    if not place.is_dir():
        return
    raw = subprocess.run(["git", "-C", str(place), "cat-file", "blob", one.blob], capture_output=True, check=False)
    if raw.returncode:
        return
    if one.agent in _READERS:
        yield from _of_a_log(one.agent, raw.stdout)
        return
    text = raw.stdout.decode("utf-8", "replace")
    parts = _aider(text) if one.agent == "aider" else _specstory(text)
    answer = ""
    for role, said in parts:
        if role == "U" and said.strip() and answer:
            yield _digest(said.strip()), _of_a_turn(answer, said.strip())
        if role != "U" and not said.strip():
            continue
        answer = said.strip() if role == "A" else ""
    for found in _SHELL.finditer(text):
        yield _digest(found[1] + "\0" + found[2]), _of_a_command(one.agent, found[1], found[2], ())


def _of_a_log(agent: str, log: bytes) -> Iterator[tuple[str, Moment]]:
    """The moments of a log, with the reader of its format, as in the daemon."""
    cursor, reader = Cursor(), _READERS[agent]
    while True:
        folded = reader.fold(cursor, log[cursor.offset :], True, Limits())
        for item in folded.items:
            if isinstance(item, Found | Bad):
                continue
            moment = item.about if isinstance(item, Remark) else item
            place = answer_before(moment, len(moment.messages))
            if moment.then is not None and place >= 0:
                said = moment.then.message["content"]
                yield _digest(said), _of_a_turn(moment.messages[place].message["content"], said)
            for n in range(moment.fresh, len(moment.messages)):
                given = moment.messages[n]
                call = call_of(moment, n) if given.message["role"] == "tool" else None
                command = command_of(call.arguments) if call is not None else ""
                if command:
                    output = str(given.message["content"])
                    yield _digest(command + "\0" + output), _of_a_command(agent, command, output, given.signals)
        if folded.cursor == cursor:
            return
        cursor = folded.cursor


def _specstory(text: str) -> list[tuple[str, str]]:
    """Turns of a session of Cursor, Claude Code or Copilot in SpecStory's format."""
    heads = list(_TURN.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        ("U" if head[1] == "User" else "A", text[head.end() : end].strip().strip("-").strip())
        for head, end in zip(heads, ends, strict=True)
    ]


def _aider(text: str) -> list[tuple[str, str]]:
    """Turns of aider's history: `####` marks typed text, `>` the program's."""
    turns: list[tuple[str, str]] = []
    for line in text.split("\n"):
        if line.startswith("# aider chat started"):
            turns.append(("X", ""))
        elif line.startswith("#### "):
            before = turns.pop()[1] + "\n" if turns and turns[-1][0] == "U" else ""
            turns.append(("U", before + line[5:].rstrip()))
        elif not line.startswith("> ") and (line.strip() or (turns and turns[-1][0] == "A")):
            before = turns.pop()[1] if turns and turns[-1][0] == "A" else ""
            turns.append(("A", before + line + "\n"))
    return turns


def _of_a_turn(answer: str, said: str) -> Moment:
    messages = Said(form("user", "..."), prompt=True), Said(form("assistant", answer or "(calls)"))
    return Moment(1, 1, Session(), messages, 0, then=Said(form("user", said), prompt=True))


def _of_a_command(agent: str, command: str, output: str, signals: tuple[Signal, ...]) -> Moment:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": {"command": command}}}
    messages = (
        Said(form("user", "..."), prompt=True),
        Said(form("assistant", "") | {"tool_calls": [call]}),
        Said(form("tool", output) | {"tool_call_id": "1"}, signals=signals),
    )
    return Moment(1, 1, Session(agent=agent), messages, 0)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
