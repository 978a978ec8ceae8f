"""The page of a candidate: pieces of text, each with its role. The screen decides how a role looks; without colour,
marks in the text show it (`with_marks`)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from apollod.cli.control.examples.desk import Body, Candidate
from apollod.cli.control.examples.example_text import Part, parts
from apollod.cli.render import plain

Look = Literal["text", "heading", "target", "stripped", "good", "bad", "quiet"]
"""target: learned; stripped: taken out before; quiet: a remark of ours."""
FOLDED_LINES = 5
"""Lines of a long turn of context, unless all is shown."""
FOLDED_TURNS = 2
"""Turns of context before the first target, unless all is shown."""
GOOD, BAD = ("good", "approve", "accept"), ("bad", "correction", "decline", "reject")
QUOTED_MAX = 400


class Piece(NamedTuple):
    """Text in one look; safe for a terminal."""

    text: str
    look: Look = "text"


def page(candidate: Candidate, now_ns: int, whole: bool = False, worth: str = "", labels: str = "") -> list[Piece]:
    """Page of a held example. `whole`: unfold the context; `worth`: reason for its place in the queue; `labels`: labels
    that will be stored with the decision."""
    shown = [*_head(candidate, now_ns, worth, labels), *_evidence(candidate)]
    for part in _folded(parts(candidate.record, candidate.removed), whole):
        shown += _part(part, whole)
    return [*shown, *_others(candidate)]


def with_marks(pieces: Sequence[Piece]) -> str:
    """The page without colour: targets between [[ and ]], stripped text between [- and -]."""
    marks = {"target": ("[[", "]]"), "stripped": ("[-", "-]"), "heading": ("== ", "")}
    marked = []
    for piece in pieces:
        opening, closing = marks.get(piece.look, ("", ""))
        body = piece.text.rstrip("\n")
        marked.append(f"{opening}{body}{closing}{piece.text[len(body) :]}")
    return "".join(marked)


# --- what it is ---------------------------------------------------------------------------------------------------


def _head(c: Candidate, now_ns: int, worth: str, labels: str) -> Iterator[Piece]:
    who = "" if c.waits.waits_for == "person" else f", waits for the {c.waits.waits_for}"
    yield Piece(plain(f"{c.id[:12]}  {c.waits.tier}  {c.path}:{c.line}\n"))
    yield Piece(plain(f"held for {_since(now_ns - c.waits.at_ns)}: {c.waits.reason}{who}\n"), "quiet")
    if worth:
        yield Piece(plain(f"comes here by {worth}\n"), "quiet")
    if labels:
        yield Piece("labels", "heading")
        yield Piece(plain(f" {labels}\n"))


def _since(ns: int) -> str:
    """A span of time, rounded."""
    minutes = max(0, ns) // 60_000_000_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


# --- what speaks for and against it -------------------------------------------------------------------------------


def _evidence(c: Candidate) -> Iterator[Piece]:
    if score := c.facts.score:
        yield Piece("divergence", "heading")
        between = [f"{name} {score[key]:.3g}" for name, key in _SCORES if isinstance(score.get(key), int | float)]
        value = score.get("divergence")
        yield Piece(f" {value:.3g} nats a token" if isinstance(value, int | float) else "")
        yield Piece((f" ({', '.join(between)})" if between else "") + "\n", "quiet")
    for signal in c.facts.signals:
        polarity = str(signal.get("polarity", ""))
        told = [str(signal.get("kind", "")), polarity, *_strength(signal)]
        yield Piece("signal", "heading")
        yield Piece(plain(" " + ", ".join(dict.fromkeys(filter(None, told)))), _look_of(polarity))
        yield from _quote(signal)
    for verdict in c.facts.verdicts:
        said = str(verdict.get("verdict", ""))
        yield Piece("verdict", "heading")
        yield Piece(plain(f" {said}"), _look_of(said))
        by = verdict.get("by", "")
        model = f" {verdict['model']}" if by == "judge" and verdict.get("model") else ""
        yield Piece(plain(f" by {by}{model}" if by else ""), "quiet")
        yield Piece(plain(f": {_short(verdict['reason'])}" if verdict.get("reason") else ""))
        yield from _quote(verdict)


_SCORES = (("with the context", "with_context"), ("without", "without_context"))


def _strength(signal: Body) -> list[str]:
    strength = signal.get("strength")
    if strength in (None, ""):
        return []
    return [f"{strength:.2g}" if isinstance(strength, int | float) else str(strength)]


def _look_of(said: str) -> Look:
    return "good" if said in GOOD else "bad" if said in BAD else "text"


def _quote(body: Body) -> Iterator[Piece]:
    if body.get("quote"):
        yield Piece(plain(f'\n    "{_short(body["quote"])}"'))
    yield Piece("\n")


def _short(text: Any) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= QUOTED_MAX else f"{line[: QUOTED_MAX - 3]}..."


# --- what it says -------------------------------------------------------------------------------------------------


def _folded(found: list[Part], whole: bool) -> Iterator[Part | int]:
    """The parts that are shown, and at gaps the number of turns left out. The turns before the first target stay, and
    so do all targets and stripped parts."""
    first = next((n for n, part in enumerate(found) if part.target), len(found))
    out = 0
    for n, part in enumerate(found):
        if whole or n >= first - FOLDED_TURNS or part.gone or part.stripped:
            yield from [out] if out else []
            yield part
            out = 0
        else:
            out += 1


def _part(part: Part | int, whole: bool) -> Iterator[Piece]:
    if isinstance(part, int):
        turns = "1 turn" if part == 1 else f"{part} turns"
        yield Piece(f"\n... {turns} of the context; x shows all\n", "quiet")
        return
    yield Piece("\n")
    yield Piece(plain(part.heading), "heading")
    yield Piece("\n")
    for piece in [Piece(part.text, "stripped")] if part.gone else _spans(part):
        lines = piece.text.split("\n")
        if whole or part.target or len(lines) <= FOLDED_LINES + 1:
            yield Piece(plain(piece.text), piece.look)
        else:
            yield Piece(plain("\n".join(lines[:FOLDED_LINES])), piece.look)
            yield Piece(f"\n... {len(lines) - FOLDED_LINES} more lines; x shows all\n", "quiet")
    yield Piece("\n")


def _spans(part: Part) -> Iterator[Piece]:
    at = 0
    look: Look = "target" if part.target else "text"
    for where, text in part.stripped:
        yield Piece(part.text[at:where], look)
        yield Piece(text, "stripped")
        at = where
    yield Piece(part.text[at:], look)


def _others(c: Candidate) -> Iterator[Piece]:
    """Alternative answers, which are not learned."""
    better = [("the judge would answer", one.get("better")) for one in c.facts.verdicts[-1:]]
    for heading, text in [*better, ("without what was stripped the model answers", c.facts.score.get("alternate"))]:
        if text:
            yield Piece("\n")
            yield Piece(heading, "heading")
            yield Piece(plain(f"\n{text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)}\n"))
