"""Proposes instructions to dream of: the texts that were stripped from the most learned examples. Pure.

Texts that are nearly the same count as one: an instruction that contains the date differs in every session.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import unpack

from apollod.core.facts.dreams.patterns import INSTRUCTION_MAX
from apollod.core.facts.dreams.scenario import Sketch, likeness
from apollod.curation.dreaming.scenario_text import sketch_of

INSTRUCTIVE = ("system", "memory", "reminder", "marked", "pattern")
"""stripping reasons of texts that tell a model how to behave; tools and scaffolding do not"""
ALIKE = 0.9
"""likeness from which on two texts count as the same"""
COMPARED = 4_000
"""characters of a text that are compared"""
GROUPS_MAX = 5_000
"""different texts that are counted; beyond it the rarer half is forgotten"""
KEYS = 6
"""number of smallest hashes of a sketch used as index keys for similar texts"""
VARIANTS_MAX = 50
"""wordings of a text that are counted separately"""
NAME_WORDS = 5
NAME_MAX = 48
_WRAPPED = re.compile(r"<([a-z][\w-]*)>\s*(.*?)\s*</\1>", re.DOTALL)


@dataclass
class Proposal:
    """A text, in the wording that was stripped most often."""

    wordings: Counter[str] = field(default_factory=Counter)
    examples: int = 0
    """examples from which it was stripped"""
    learned: int = 0
    """learned ones among them"""
    sessions: set[int] = field(default_factory=set)
    """hashes of their sessions"""
    whys: Counter[str] = field(default_factory=Counter)
    sketch: Sketch | None = None

    @property
    def text(self) -> str:
        return self.wordings.most_common(1)[0][0]


class Proposals:
    """Counts texts as they come, in bounded memory even if no two of them are the same."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: instructions of existing patterns, which are not proposed again."""
        self.too_long = 0
        """texts too long for a pattern's instruction"""
        self._groups: list[Proposal] = []
        self._exact: dict[str, Proposal] = {}
        self._near: dict[int, list[Proposal]] = {}
        self._known = [self._group(text) for text in known]

    def add(self, texts: Iterable[tuple[str, str]], learned: bool, session: str) -> None:
        """Count one example: the texts stripped from it, each with its reason, and its session. A text counts once per
        example."""
        seen: set[int] = set()
        for why, text in texts:
            if why not in INSTRUCTIVE or not (told := unwrapped(text)):
                continue
            if len(told) > INSTRUCTION_MAX:
                self.too_long += 1
                continue
            found = self._exact.get(told) or self._group(told)
            if id(found) in seen:
                continue
            seen.add(id(found))
            found.examples += 1
            found.learned += learned
            found.sessions.add(hash(session))
            found.whys[why] += 1
            if told in found.wordings or len(found.wordings) < VARIANTS_MAX:
                found.wordings[told] += 1
        if len(self._groups) > GROUPS_MAX:
            self._forget()

    def most(self, learned: int, limit: int = 0) -> list[Proposal]:
        """The texts stripped from at least `learned` learned examples, most frequent first; limit 0: all of them."""
        known = {id(one) for one in self._known}
        found = [one for one in self._groups if id(one) not in known and one.learned >= learned and one.examples]
        found.sort(key=lambda one: (-one.learned, -one.examples, one.text))
        return found[:limit] if limit else found

    def _group(self, text: str) -> Proposal:
        """The group of this text or of one that is nearly the same; a new one if there is none."""
        sketch = sketch_of(text[:COMPARED])
        keys = unpack(f"<{len(sketch.grams) // 2}H", sketch.grams)[:KEYS]
        near = (one for key in keys for one in self._near.get(key, ()) if one.sketch is not None)
        found = next((one for one in near if one.sketch and likeness(one.sketch, sketch) >= ALIKE), None)
        if found is None:
            found = Proposal(sketch=sketch)
            self._groups.append(found)
            for key in keys:
                self._near.setdefault(key, []).append(found)
        if len(self._exact) < 4 * GROUPS_MAX:
            self._exact[text] = found
        return found

    def _forget(self) -> None:
        known = {id(one) for one in self._known}
        kept = sorted(self._groups, key=lambda one: (id(one) in known, one.examples), reverse=True)[: GROUPS_MAX // 2]
        stays = {id(one) for one in kept}
        self._groups = [one for one in self._groups if id(one) in stays]
        self._exact = {text: one for text, one in self._exact.items() if id(one) in stays}
        near = {key: [one for one in ones if id(one) in stays] for key, ones in self._near.items()}
        self._near = {key: ones for key, ones in near.items() if ones}


def unwrapped(text: str) -> str:
    """The text without a tag around all of it, and without surrounding white space."""
    whole = _WRAPPED.fullmatch(text.strip())
    return whole[2] if whole is not None else text.strip()


def name_for(text: str, taken: Iterable[str]) -> str:
    """A name made of its first words, different from all `taken` ones."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
    base = "-".join(words)[:NAME_MAX].strip("-") or "pattern"
    names, number = set(taken), 1
    while (name := base if number == 1 else f"{base}-{number}") in names:
        number += 1
    return name
