"""Text for people: tables, sizes, and phrases that several pages share. Plain ASCII, no meaning by colour."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import Any

CELL_MAX = 60
FLOAT32_PRODUCTS = (
    "in float32, as for a processor without bf16 instructions: a step takes about 3 times as long as with them"
)
"""Figure from docs/benchmarks/2026-11-22-cpu-products.md."""


Text = str | Sequence[str]
"""A text, or its lines."""
Column = str | tuple[str, str | Callable[[Any], Any]]
"""A column of a list: the key of its values, which is also its heading; or (heading, key or function of the row)."""


def listed(columns: Sequence[Column], found: Sequence[Mapping[str, Any]]) -> str:
    """A table of objects, one a line."""
    pairs = [(one, one) if isinstance(one, str) else one for one in columns]
    cells = [[value(row) if callable(value) else row.get(value) for _, value in pairs] for row in found]
    return table([heading for heading, _ in pairs], cells)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Cells in columns as wide as their widest cell; columns of numbers are aligned right."""
    names = [plain(" ".join(c.split())) for c in columns]
    cells = [[_cell(v) for v in row] for row in rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(names)]
    right = [bool(rows) and all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        return "  ".join(
            v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)
        ).rstrip()

    return "\n".join([line(names), line(["-" * w for w in widths]), *(line(r) for r in cells)])


def fields(*pairs: tuple[str, Any]) -> list[str]:
    """Lines of a page, each a name and its value; a pair whose value is empty (None, False, "", [], {}) has no line."""
    return [f"{name:<12}{value}" for name, value in pairs if value is not False and value not in (None, "", [], {})]


def first(lines: Sequence[str], most: int, more: str) -> list[str]:
    """The first lines, `most` at most; if there are others, also `more`, whose {} is their number."""
    return [*lines[:most], *([more.format(len(lines) - most)] if len(lines) > most else [])]


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = plain(" ".join(text.split())[: CELL_MAX + 1])  # cut first: a value may be very long
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 3] + "..."


def plain(text: str) -> str:
    """Escape what could steer the terminal in text from outside; lines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def indented(text: str) -> list[str]:
    """Lines of a text, to stand below the line that names it."""
    return indent(text, "    ", lambda line: True).split("\n")


def show(args: argparse.Namespace, answer: Mapping[str, Any], text: Text | Callable[[], Text]) -> int:
    """Print an answer: with --json one object, else its text or lines, made safe for a terminal. A function is called
    only where its text is needed. Returns exit code 0."""
    if args.json:
        print_object(answer)
        return 0
    text = text() if callable(text) else text
    print(plain(text if isinstance(text, str) else "\n".join(text)))
    return 0


def print_object(answer: Mapping[str, Any]) -> None:
    """Print an answer as one JSON object, with the version of its form."""
    print(json.dumps({"schema_version": 1, **answer}))


def say(text: str) -> None:
    """Print a message on standard error."""
    print(plain(f"apollod: {text}"), file=sys.stderr)


def progress(text: str) -> None:
    """Write over the line of progress on standard error, if that is a terminal."""
    if os.isatty(2):
        print(f"\r\x1b[K{plain(text)}", end="", file=sys.stderr, flush=True)


def cut(text: object, most: int) -> str:
    """A text on one line of at most `most` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def minute(seconds: float) -> str:
    """A moment (Unix time) in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(count: int, noun: str) -> str:
    """A number with its noun in singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """A rough duration in the unit that a person would take."""
    for unit, of_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * of_s:
            return f"{seconds / of_s:.1f} {unit}"
    return f"{seconds:.0f} s"


def bootstrap_text(b: Mapping[str, Any]) -> str:
    """Progress of a bootstrap, from the object of that name in the status."""
    read, waiting = "", b["waiting"]
    if b["state"] == "reading":
        files = f"{b['files_read']} of {b['files']} files" if b.get("files") is not None else "looking for files"
        share = f" ({b['bytes_read'] / b['bytes']:.0%} of {size(b['bytes'])})" if b.get("bytes") else ""
        read = f"{files} read{share}, " if b.get("files") is not None else f"{files}, "
    more = (b.get("left") or waiting) - waiting
    left = f"{waiting} left" + (f" and about {more} to be read" if more else "")
    text = f"{read}{b['learned']} of {b['accepted']} examples learned, {left}, {b['duplicates']} duplicates"
    if b["state"] not in ("reading", "learning"):
        return text
    left_s = b.get("left_s")
    return text + (", time left unknown" if left_s is None else f", about {duration(left_s)} left")


def has_patterns(dreams: Mapping[str, Any]) -> bool:
    """True if there are, or were, patterns; from the object `dreams` of the status."""
    return bool(dreams.get("active") or dreams.get("settled") or dreams.get("retired"))


def dreams_text(d: Mapping[str, Any]) -> str:
    """State of dreams, from the object of that name in the status."""
    patterns = ", ".join(f"{d[phase]} {phase}" for phase in ("active", "settled", "retired") if d[phase])
    share = "" if d["share"] is None else f", {d['share']:.0%} of what was learned lately"
    why = f" (waits: {d['reason']})" if d["reason"] else ""
    return f"{patterns}; {d['next'] or 'nothing is left to do'}{why}; {d['today']} today, {d['total']} in all{share}"


def lessons_text(found: Mapping[str, Any]) -> str:
    """State of lessons, from the object `lessons` of the status; empty if there never was a lesson."""
    names = ("known", "practising", "waiting", "fading", "replaced", "given_up")
    counts = ", ".join(f"{found[name]} {name.replace('_', ' ')}" for name in names if found.get(name))
    if not counts:
        return ""
    now = f"; {found['lesson']} is under way ({found['stage']})" if found["lesson"] else ""
    left = found["practising"] or found["waiting"] or found["fading"]
    why = found["reason"] or found["error"]
    return f"{counts}{now}" + (f"; waits: {why}" if why and left else "")


def environments_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Environments in one line; empty if there are none."""
    parts = []
    for one in found:
        reward = "" if one["reward"] is None else f", reward {one['reward']:.2f}"
        why = f" ({one['reason']})" if one["reason"] else ""
        parts.append(f"{one['name']} {one['state']}{why}, {one['learned']} groups learned{reward}")
    return "; ".join(parts)


def growth_text(journal_per_day: int, history_per_day: int, days_left: float | None) -> str:
    """Growth of the state directory, and time until its disk is full."""
    left = "" if days_left is None else f"; the disk is full in {days_left:.3g} days"
    return f"journal {size(journal_per_day)} a day, history {size(history_per_day)} a day{left}"


def toml_value(value: Any) -> str:
    """A string, number, truth value, or a list or table of these. JSON of a value is TOML here, except for escaped
    surrogates, which TOML does not have, and for DEL, which it wants escaped."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_value(key)} = {toml_value(one)}" for key, one in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
