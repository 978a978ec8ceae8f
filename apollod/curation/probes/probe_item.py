"""A probe, the words that it is compared by, the digest of a set of them, and the items of a run without time for all:
the same share of every group, in turns.

In comparisons of words, case, white space and punctuation do not count, mathematical signs do. In scripts without
spaces, a character is a word.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from apollod.core.facts.quality.looking import LEAST
from apollod.core.settings import Check

Kind = Literal["text", "exact", "regex", "schema", "judge", "tool", "contrast", "lesson"]
"""names of the kinds in `probe_kinds.py`"""
PROBES_MAX = 4000
"""most probes in all files together: each is asked again and again"""
LARGE, TRIED = 40, 8
"""size above which a group is tried on some items first, and their number"""

Shingle = tuple[str, ...]

_NO_SPACES = "\u3040-\u30ff\u3400-\u9fff"
_words = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+|[-+*/=<>%^$\u20ac\u00a3]").findall
written = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The call that a `tool` item expects: of the function `call`, or no call (None). Its arguments must follow the
    schema of the tool's own parameters, and `arguments`."""

    call: str | None
    arguments: dict[str, Any] | bool = True


class Probe(msgspec.Struct, frozen=True):
    """One item. `expect`: see its kind in `probe_kinds.py`. `place`: file and line."""

    id: str
    group: str
    kind: Kind
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    expect: tuple[str, ...] | str | dict[str, Any] | bool | Call | Check = ""
    place: str = ""

    def canonical(self) -> bytes:
        """JSON of all fields that can change the result."""
        fields = {name: getattr(self, name) for name in ("id", "group", "kind", "text", "messages", "tools", "expect")}
        return written(msgspec.to_builtins(fields)).encode()

    def asked(self) -> tuple[str, ...]:
        """The words of the scored text or of the request."""
        said = [f"{one['role']}\n{one['content']}" for one in self.messages]
        return words_of("\n".join([self.text, *said, *map(written, self.tools)]))

    def said(self) -> tuple[str, ...]:
        """The item's own words: without system prompt and tools, which many items share."""
        said = [one["content"] for one in self.messages if one["role"] not in ("system", "developer")]
        return words_of("\n".join([self.text, *said]))


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(_words(text.casefold()))


def shingles_of(words: Sequence[str], size: int) -> frozenset[Shingle]:
    """All runs of `size` words; one run of all words if there are fewer."""
    return frozenset(tuple(words[place : place + size]) for place in range(max(1, len(words) - size + 1)))


def digest(probes: Iterable[Probe]) -> str:
    """Identifies a frozen set: hex of BLAKE2b-128 of its items, independent of files and order. Changes with any field
    that can change a result."""
    whole = blake2b(digest_size=16)
    for one in sorted(probe.canonical() for probe in probes):
        whole.update(len(one).to_bytes(8, "little") + one)
    return whole.hexdigest()


def of_large_groups(items: Sequence[Probe]) -> tuple[Probe, ...]:
    """TRIED items of each group with more than LARGE."""
    counts = Counter(probe.group for probe in items)
    return sample([probe for probe in items if counts[probe.group] > LARGE], TRIED / PROBES_MAX, 0, TRIED)


def sample(items: Sequence[Probe], share: float, turn: int, least: int = LEAST) -> tuple[Probe, ...]:
    """The items of run number `turn`, in the order of `items`: the `share` (above 0, up to 1) of each group, rounded
    up, but at least `least`. The order within a group follows from ids alone, and each turn starts where the last one
    ended, so that n runs cover a group of n times as many items as one run asks of it."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a share of {share} of the probes cannot be asked")
    groups: dict[str, list[str]] = defaultdict(list)
    for probe in items:
        groups[probe.group].append(probe.id)
    chosen: set[str] = set()
    for ids in groups.values():
        ids.sort(key=lambda one: blake2b(one.encode(), digest_size=8).digest())
        count = min(len(ids), max(least, math.ceil(share * len(ids) - 1e-9)))
        chosen |= {ids[(turn * count + place) % len(ids)] for place in range(count)}
    return tuple(probe for probe in items if probe.id in chosen)
