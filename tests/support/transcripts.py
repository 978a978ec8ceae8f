"""Runs transcripts of the core: text files of commands, each followed by the events and effects it led to.

A block is text between empty lines: comments (`#`), commands (`>`) and the outcome, indented, which `rewritten` writes
anew. Commands of a line are separated by `;`, and a line that ends with `;` or `|` goes on in the next:

    world accumulate=2            a new `World` with these settings; `world Guarded cost=0.0` takes another kind
    lines a b tier=direct         a method of the world: `up`, `settle`, `answer 3`, `exit trainer`, `dream 60`, ...
    ready                         `up`, and a judge examined, of which nothing is shown
    learn a b; save               examples one by one, each to its end; a checkpoint on demand
    night 1                       the next night is known: one day and 10 hours after the world began
    TrainingPaused by=t           an input; required fields that are left out are 0, "" or empty
    set memory=torn               attributes of the world
    @ +30s                        time passes (s, m, h, d)
    take RunStep                  children answer until this effect is the next one, which stays unanswered: `$taken`
    take_last                     the effect that would be answered last stays unanswered
    until RunStep                 the same, but it will be answered
    restart, crash                the supervisor dies: a new life on the same journal; `crash` also starts it
    clock -3600                   the clock is moved, and nobody looks at it yet
    later                         the oldest effect is answered last; `wrote W`: the checkpoint it writes holds W;
                                  `put PATH`: the directory and the model directory are there without an answer
    repeat 24 lines =e; settle    the whole line so often; words that begin with `=` get a number
    dies 1 answer                 the supervisor dies at the first instant of a command that matters for a crash
    ? queued training.version     values of the state or the world

`| step.completed:example,lr RunStep` at the end of a line selects what is shown by the beginning of an event's kind or
an effect's name, and fields; `| -engine` leaves out; `| none`. A `show` line sets it for the rest of the file. Fields
with their default values are left out; hexadecimal digests are numbered in order of appearance in their world, so that
equal ones have equal names.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from support.dreaming_world import DreamingWorld, dreaming
from support.guarded_lessons import GuardedLessons
from support.guarded_world import GUARDED, GuardedWorld, guarded
from support.judged_world import JUDGED, JudgedWorld
from support.said_world import SaidWorld
from support.taught_world import TaughtWorld, teaching
from support.transcript_text import BEGINNING_NS, Shown, Text, selection, wrapped
from support.world import SETTINGS, Died, Kept, World, Writing, changed

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.activities import Activity, blocked
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import ScheduleSettings
from apollod.supervisor.status_view import status_view
from apollod.wire.status import Journal

NIGHT, ZONE = "02:00-05:00", "Europe/Berlin"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
TOKEN = re.compile(r"""(?:[^\s"'\[({;|]|"[^"]*"|'[^']*'|\[[^\]]*\]|\([^)]*\)|\{[^}]*\})+|[;|]""")


def settings_for(kind: str, changes: dict[str, Any]) -> ev.Settings:
    """Those that tests of this kind of world begin with, and changes by the names of settings."""
    if kind == "Guarded":
        own = {name: changes.pop(name) for name in list(changes) if name in GUARDED.quality.__struct_fields__}
        return changed(guarded(**own), **changes)
    if kind == "Dreaming":
        return dreaming(**changes)
    if kind == "Nightly":
        accumulate = changes.pop("accumulate", 0)
        section = msgspec.structs.replace(SETTINGS.schedule, nightly=NIGHT, zone=ZONE, accumulate=accumulate)
        return changed(msgspec.structs.replace(SETTINGS, schedule=section), **changes)
    if changes.pop("schedule_nightly", False):
        return msgspec.structs.replace(teaching(**changes), schedule=ScheduleSettings(nightly=NIGHT))
    plain = {"Judged": JUDGED, "Taught": teaching()}.get(kind, SETTINGS)
    return changed(plain, **changes)


WORLDS: dict[str, type[World]] = {
    "": World,
    "Nightly": World,
    "Guarded": GuardedWorld,
    "Dreaming": DreamingWorld,
    "Judged": JudgedWorld,
    "Taught": TaughtWorld,
    "Said": SaidWorld,
    "GuardedLessons": GuardedLessons,
}


class Transcript:
    """One file's life, command by command."""

    def __init__(self) -> None:
        self.world = World()
        self.taken: Any = None
        self.text = Text()
        self.default: list[Shown] = []

    def run(self, line: str) -> list[str]:
        """The outcome of a line of commands."""
        tokens, shown, lines = TOKEN.findall(line), self.default, list[str]()
        if tokens[0] == "show":
            self.default = selection(tokens[1:])
            return []
        if "|" in tokens:
            at = tokens.index("|")
            tokens, shown = tokens[:at], selection(tokens[at + 1 :])
        self.world.seen.clear()
        if tokens[0] == "repeat":
            again = [*tokens[2:], ";"] * int(tokens[1])
            tokens = [f"{word}{n}" if word.startswith("=") else word for n, word in enumerate(again[:-1])]
        command: list[str] = []
        for token in [*tokens, ";"]:
            if token != ";":
                command.append(token)
                continue
            before = self.world
            asked = self.command(command[0], command[1:])
            if asked or self.world is not before:
                lines += self.told(before, shown)
            lines += asked
            command = []
        return lines + self.told(self.world, shown)

    def told(self, world: World, shown: Sequence[Shown]) -> list[str]:
        """What was seen since the last time, which is then forgotten."""
        lines = self.text.lines(world.seen, shown)
        world.seen.clear()
        return lines

    def command(self, name: str, words: list[str]) -> list[str]:
        """Run one command; what it prints besides what happens in the world."""
        if name == "?":
            return wrapped("? " + "  ".join(f"{word}={self.text.value(self.looked_up(word))}" for word in words))
        if name == "@":
            self.world.pass_time(float(words[0][1:-1]) * UNITS[words[0][-1]])
        elif name == "ready":
            self.world.up()
            if isinstance(self.world, JudgedWorld) and self.world.judge is not None:
                self.world.calibrate()
            self.world.seen.clear()
        elif name == "learn":
            for one in self.arguments(words)[0]:
                self.world.lines(str(one), source=str(one))
                self.world.settle()
        elif name == "save":
            self.world.give(inp.CheckpointRequested("test"))
            self.world.settle()
        elif name == "night":
            values, _ = self.arguments(words)
            days, hours = values + [0, NIGHT][len(values) :]
            opens_ns = BEGINNING_NS + (days * 24 + 10) * 3600 * SECOND_NS
            self.world.give(inp.NightPlanned(opens_ns, opens_ns + 3 * 3600 * SECOND_NS, hours, ZONE))
        elif name == "clock":
            self.world.now += int(float(words[0]) * SECOND_NS)
        elif name == "later":
            self.world.asked.rotate(-1)
        elif name == "wrote":
            writing = self.world.asked[0]
            assert isinstance(writing, Writing)
            self.world.asked[0] = writing._replace(weights=words[0])
        elif name == "put":
            path, weights = str(self.literal(words[0])), self.world.memory
            self.world.disk[path] = Kept(weights, self.world.optimizer, self.world.model_dir[1])
            self.world.model_dir = (path, weights)
        elif name == "dies":
            self.world.dies_at = self.world.instants + int(words[0])
            try:
                self.command(words[1], words[2:])
            except Died:
                return []
            raise AssertionError(f"it lived through {' '.join(words[1:])}")
        elif name == "take":
            self.world.settle_until(getattr(fx, words[0]))
            self.taken = self.world.asked.popleft()
        elif name == "take_last":
            self.taken = self.world.asked.pop()
        elif name == "until":
            self.world.settle_until(getattr(fx, words[0]))
        elif name in ("restart", "crash"):
            _, changes = self.arguments(words)
            self.world = self.world.successor()
            self.world.settings = changed(self.world.settings, **changes)
            if name == "crash":
                self.world.up()
        else:
            self.act(name, *self.arguments(words))
        return []

    def act(self, name: str, values: list[Any], fields: dict[str, Any]) -> None:
        """A new world, attributes, an input or a method of the world."""
        if name == "world":
            kind = str(values[0]) if values else ""
            self.world = WORLDS[kind](settings_for(kind, fields))
            self.text = Text()
        elif name == "set":
            for one, value in fields.items():
                old = getattr(self.world, one)
                setattr(self.world, one, {**old, **value} if isinstance(old, dict) else value)
        elif name[0].isupper():
            kind_of_input = getattr(inp, name)
            self.world.give(kind_of_input(**filled(kind_of_input, values, fields)))
        else:
            times = values.pop() if name == "answer" and values else 1
            for _ in range(times):
                getattr(self.world, name)(*values, **fields)

    def arguments(self, words: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
        values, fields = list[Any](), dict[str, Any]()
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name.isidentifier():
                fields[name] = self.literal(value)
            elif (many := re.fullmatch(r"(\D+)(\d+)\.\.(\d+)", word)) is not None:
                values += [f"{many[1]}{n}" for n in range(int(many[2]), int(many[3]) + 1)]
            else:
                values.append(self.literal(word))
        return values, fields

    def literal(self, word: str) -> Any:
        if word.startswith("$"):
            return self.looked_up(word[1:])
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError):
            return word

    def looked_up(self, path: str) -> Any:
        """A value by its path: of `taken`, the state, the status or the world."""
        first, _, rest = path.partition(".")
        if first == "blocked":
            return blocked(Activity[rest], self.world.state)
        if first == "status":
            value: Any = status_view(self.world.state, self.world.now, Journal(seq=0, bytes=0, head_hash=""))
        elif first == "taken":
            value = self.taken
        else:
            owner = self.world.state if hasattr(self.world.state, first) else self.world
            value, rest = owner, path
        for part in filter(None, rest.split(".")):
            name, call, _ = part.partition("()")
            key: Any = int(name) if name.lstrip("-").isdigit() else name
            if name == "len":
                value = len(value)
            elif isinstance(value, dict) and not call:
                value = value[key] if key in value else list(value.values())[int(key)]
            elif isinstance(key, int):
                value = list(value)[key]
            else:
                value = getattr(value, name)
            value = value() if call else value
        return value


def filled(kind: type[inp.Input], values: Sequence[Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an input: positional ones, then named ones, then nothing for required ones."""
    own = msgspec.structs.fields(kind)
    given = {field.name: value for field, value in zip(own, values, strict=False)} | fields
    for field in own:
        if field.name not in given and field.required:
            given[field.name] = msgspec.convert({int: 0, float: 0.0, bool: False, str: ""}.get(field.type, ()), Any)
    return given


def rewritten(text: str) -> str:
    """A transcript with the outcomes of its commands as they are now."""
    transcript, lines = Transcript(), list[str]()
    commands = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith((" ", "\t")):
            lines.append(line)
        if line.startswith("> "):
            commands += line.removeprefix(">")
            if commands.endswith((";", "|")):
                continue
            try:
                lines += transcript.run(commands)
                commands = ""
            except Exception as error:
                error.add_note(f"line {number}: {line}")
                raise
    return "\n".join(lines) + "\n"


def transcripts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.txt"))
