"""The text of a transcript: events and effects as lines that people read and compare (support/transcripts.py)."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from support.world import World, digest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.schedules import SECOND_NS

WIDTH = 118
VALUE_MAX = 200
SHORT = 60
"""characters of what shares a line with others"""
INVENTED = frozenset({"seconds", "grad_norm", "update_norm", "kind"})
"""fields that a world makes up; shown where they are asked for"""
MOSTLY_ZERO = frozenset({"skipped_zero", "skipped_nonfinite", "cut", "mean_diff", "nonfinite"})
"""fields without a default that are shown where they are not 0"""
BEGINNING_NS = World().now
HEX = re.compile(r"\b[0-9a-f]{16,}\b")
LABELS = [kind.kind for kind in vars(ev).values() if isinstance(kind, type) and issubclass(kind, Event)]
LABELS += [name for name, kind in vars(fx).items() if isinstance(kind, type) and issubclass(kind, Effect)]
"""of all events and effects"""


class Shown(NamedTuple):
    """An item of a selection; `fields` empty: all that are not invented."""

    begins: str
    fields: tuple[str, ...] = ()
    left_out: bool = False


class Text:
    """Lines about what happens in one world; its digests have numbers in order of appearance."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    def lines(self, seen: Iterable[Event | Effect], shown: Sequence[Shown]) -> list[str]:
        """Lines about these: one of each, and one of all with chosen fields that follow each other."""
        rows: list[tuple[str, list[str], bool]] = []
        for one in seen:
            label = one.kind if isinstance(one, Event) else type(one).__name__
            if (chosen := choice(label, shown)) is None:
                continue
            label = label if isinstance(one, Event) else f"-> {label}"
            text = " ".join(self.fields(one, chosen.fields))
            if len(chosen.fields) == 1:
                name, _, text = text.partition("=")
                label = f"{label} {name}:"
            same = rows and rows[-1][0] == label
            if same and (rows[-1][1][-1] == text or (rows[-1][2] and chosen.fields)):
                rows[-1][1].append(text)
            else:
                rows.append((label, [text], bool(chosen.fields)))
        lines, short = list[str](), list[str]()
        for label, texts, chosen_fields in rows:
            text = f"{label} {', '.join(counted(texts))}".rstrip()
            if (chosen_fields or not any(texts)) and len(text) <= SHORT:
                short.append(text)
                continue
            lines += wrapped("; ".join(short)) + wrapped(text)
            short.clear()
        return lines + wrapped("; ".join(short))

    def fields(self, one: msgspec.Struct, chosen: Sequence[str] = ()) -> list[str]:
        """`name=value` of chosen fields, or of those that are not what they are by default."""
        if chosen:
            return [f"{name}={self.value(getattr(one, name), name)}" for name in chosen]
        found = []
        for field in msgspec.structs.fields(type(one)):
            value = getattr(one, field.name)
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            quiet = field.name in INVENTED or (field.name in MOSTLY_ZERO and not value)
            if not quiet and value != default:
                found.append(f"{field.name}={self.value(value, field.name)}")
        return found

    def value(self, value: Any, name: str = "") -> str:
        match value:
            case bool() | None:
                return str(value).lower()
            case int() if name.endswith("_ns") and value:
                return f"{(value - BEGINNING_NS) / SECOND_NS:+g}s"
            case int():
                return str(int(value))
            case float():
                return f"{value:.6g}"
            case bytes() | msgspec.Raw():
                return f"<{len(bytes(value))} bytes>"
            case msgspec.Struct():
                text = f"({' '.join(self.fields(value))})"
            case dict():
                pairs = [(self.value(k), self.value(v)) for k, v in value.items()]
                runs = [(key, [k for k, _ in own]) for key, own in groupby(pairs, lambda pair: pair[1])]
                text = "{" + " ".join(f"{k}:{said}" for said, keys in runs for k in counted(keys)) + "}"
            case str():
                text = HEX.sub(lambda found: self.digests.setdefault(found[0], f"#{len(self.digests) + 1}"), value)
                text = text if text and not re.search(r"""[\s"=,]""", text) else f'"{text}"'
            case list() | tuple() | set() | frozenset():
                each = [self.value(one) for one in value]
                text = f"[{' '.join(counted(sorted(each) if isinstance(value, set | frozenset) else each, equal=4))}]"
            case _ if hasattr(value, "__iter__"):
                return self.value(list(value), name)
            case _:
                text = str(value)
        return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}... ({digest(text)[:6]})"


def selection(words: Iterable[str]) -> list[Shown]:
    shown = []
    for word in words:
        begins, _, fields = word.removeprefix("-").partition(":")
        if begins not in ("*", "none") and not any(label.startswith(begins) for label in LABELS):
            raise ValueError(f"no event and no effect begins with {begins}")
        shown.append(Shown(begins, tuple(filter(None, fields.split(","))), word.startswith("-")))
    return shown


def choice(label: str, shown: Sequence[Shown]) -> Shown | None:
    """The item that shows this label; None: it is not shown."""
    found = next((one for one in shown if label.startswith(one.begins) or one.begins == "*"), None)
    if found is not None:
        return None if found.left_out else found
    return None if any(not one.left_out for one in shown) else Shown("")


def counted(texts: Sequence[str], equal: int = 2) -> list[str]:
    """So many equal neighbours as one, with their number, and runs of numbered names as `e1..e40`."""
    rows: list[tuple[str, str, int]] = []  # first, last, how many
    for text in texts:
        last = rows[-1] if rows else ("", "", 0)
        if (rows and last[0] == last[1] == text) or (rows and text == following(last[1])):
            rows[-1] = (last[0], text, last[2] + 1)
        else:
            rows.append((text, text, 1))
    found = list[str]()
    for first, last_one, times in rows:
        if first == last_one:
            found += [f"{first} ({times} times)".lstrip()] if times >= equal else [first] * times
        else:
            found += [f"{first}..{last_one}"] if times > 2 else [first, last_one]
    return found


def following(text: str) -> str:
    """`e2` after `e1`; empty after another text."""
    named = re.fullmatch(r"([a-zA-Z]+)(\d+)", text)
    return f"{named[1]}{int(named[2]) + 1:0{len(named[2])}}" if named else ""


def wrapped(line: str) -> list[str]:
    return textwrap.wrap(
        line, WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )
