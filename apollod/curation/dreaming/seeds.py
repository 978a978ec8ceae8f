"""Seeds of scenarios: pieces of notes and records, and the choice among them.

The draw is weighted. Newer seeds weigh more, and so do those that surfaced less often or taught more: by the loss with
which their dreams were learned (how far the model was from giving that answer unprompted), relative to the others.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import log
from typing import Any, NamedTuple

import msgspec

from apollod.core.facts.dreams.scenario import Surfaced

PIECE_MAX = 1_500
"""characters of a piece of a text"""
SEED_MAX = 2_000
"""characters of a seed"""
TOGETHER_MAX = 3
"""seeds of one scenario"""

OLDEST = 0.25
"""weight of the oldest seed; the newest one has 1"""
TAUGHT_MOST = 2.0
"""largest factor by which the loss of its dreams raises or lowers a seed's weight"""

_HEADING = re.compile(r"#{1,6}\s")
_WORD = re.compile(r"\w")


class Seed(NamedTuple):
    """A text to imagine a scenario from. `id`: 16 hex digits of its digest; `place`: its location, for people; `at_ns`:
    its time, nanoseconds since 1970; 0: unknown."""

    id: str
    text: str
    place: str
    at_ns: int = 0


def seed_of(text: str, place: str, at_ns: int = 0) -> Seed | None:
    """The seed made of a text, cut to `SEED_MAX`; None if it has no words."""
    text = text.strip()[:SEED_MAX].rstrip()
    if not _WORD.search(text):
        return None
    return Seed(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(), text, place, at_ns)


def seeds_of_text(text: str, path: str, at_ns: int = 0) -> Iterator[Seed]:
    """Seeds from a text cut at headings, and at empty lines where a section is longer than `PIECE_MAX`."""
    for line, piece in _pieces(text):
        if seed := seed_of(piece, f"{path}:{line}", at_ns):
            yield seed


def seeds_of_lines(data: bytes, path: str, at_ns: int = 0) -> Iterator[Seed | str]:
    """A seed for each JSON line, or the reason why it gives none."""
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield "a line is no JSON"
            continue
        yield seed_of(text_of_record(value), f"{path}:{number}", at_ns) or "a line holds no text"


def text_of_record(value: Any) -> str:
    """The text of a record of the inbox, or of another JSON object: its last turns, or its text fields."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return ""
    messages = value.get("messages")
    if isinstance(messages, list):
        turns = [
            f"{one.get('role')}: {one['content'].strip()}"
            for one in messages
            if isinstance(one, dict)
            and isinstance(one.get("content"), str)
            and one.get("role") in ("user", "assistant")
        ]
        return _end_of(turns)
    return "\n".join(one for one in value.values() if isinstance(one, str))


def choose(
    seeds: Sequence[Seed], number: int, pattern: str, not_this: Sequence[str] = (),
    surfaced: Mapping[str, Surfaced] | None = None,
) -> tuple[Seed, ...]:  # fmt: skip
    """One to three seeds for scenario `number` of a pattern. Deterministic, independent of the order of the seeds.
    `not_this`: ids of the last choice, which is repeated only if there is no other; `surfaced`: use of each seed so
    far, by id."""
    known = {seed.id: seed for seed in seeds}
    weights = weights_of(known.values(), surfaced or {})
    before = set(not_this)
    for attempt in range(16):
        many = 1 + _draw(pattern, number, attempt, "")[0] % min(TOGETHER_MAX, max(1, len(known)))
        drawn = {id_: _draw(pattern, number, attempt, id_) for id_ in known}
        ids = sorted(known, key=lambda id_: (_place(drawn[id_], weights[id_]), id_))[:many]
        if set(ids) != before:
            return tuple(known[id_] for id_ in ids)
    return tuple(known[id_] for id_ in sorted(known, key=lambda id_: (id_ in before, id_))[:1])


def weights_of(seeds: Collection[Seed], surfaced: Mapping[str, Surfaced]) -> dict[str, float]:
    """The weight of each seed, by id."""
    ages = sorted(-seed.at_ns for seed in seeds)
    oldest = max(1, len(ages) - 1)
    means = {id_: one.taught / one.learned for id_, one in surfaced.items() if one.learned}
    usual = sum(means.values()) / len(means) if means else 0.0
    found = {}
    for seed in seeds:
        newer = OLDEST ** (bisect_left(ages, -seed.at_ns) / oldest)
        taught = means[seed.id] / usual if usual > 0 and seed.id in means else 1.0
        seldom = 1 / (1 + surfaced.get(seed.id, Surfaced()).times)
        found[seed.id] = newer * seldom * min(TAUGHT_MOST, max(1 / TAUGHT_MOST, taught))
    return found


def _place(drawn: bytes, weight: float) -> float:
    """Sort key of a weighted draw without replacement (Efraimidis and Spirakis, 2006): the smallest come first."""
    return -log((int.from_bytes(drawn, "big") + 1) / (1 << 64)) / weight


def _draw(pattern: str, number: int, attempt: int, id_: str) -> bytes:
    return blake2b(f"{pattern}\0{number}\0{attempt}\0{id_}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _end_of(turns: list[str]) -> str:
    """As many of the last turns as fit into a seed, but at least one."""
    taken, length = list[str](), 0
    for turn in reversed(turns):
        length += len(turn) + 1
        if taken and length > SEED_MAX:
            break
        taken.append(turn)
    return "\n".join(reversed(taken))


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each piece: a section, or as many of its paragraphs as a piece holds."""
    piece, began, titled = "", 1, False
    for number, paragraph in _paragraphs(text.splitlines()):
        heading = bool(_HEADING.match(paragraph))
        if piece and ((heading and not titled) or len(piece) + len(paragraph) > PIECE_MAX):
            yield began, piece
            piece = ""
        began = began if piece else number
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        titled = heading
    if piece:
        yield began, piece


def _paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each heading, and of the text between empty lines in parts of at most
    `PIECE_MAX`."""
    lines = [*lines, ""]
    began, taken = 1, list[str]()
    for number, line in enumerate(lines, 1):
        heading = bool(_HEADING.match(line))
        if taken and (heading or not line.strip()):
            yield from ((began, part) for part in _cut("\n".join(taken)))
            taken = []
        if heading:
            yield number, line
        elif line.strip():
            began = began if taken else number
            taken.append(line)


def _cut(text: str) -> Iterator[str]:
    """Parts of at most `PIECE_MAX` characters, cut between words if possible."""
    while len(text) > PIECE_MAX:
        at = max(text.rfind(sign, PIECE_MAX // 2, PIECE_MAX) for sign in " \n")
        at = PIECE_MAX if at < 0 else at
        yield text[:at]
        text = text[at:].lstrip()
    yield text
