"""Counts the results of a dry run. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apollod.core.intake.events import Removed
from apollod.core.training.pace import Pace, expected_s

FREQUENT = 3
TEXTS_MAX = 10_000
"""different texts of a rule that are counted one by one; beyond it the rarer half is forgotten, so that a source in
which no two are the same needs no more memory than one in which all are"""
TEXT_CHARACTERS = 500
"""of a text that are shown"""


@dataclass
class Stripped:
    """Text that one rule strips."""

    count: int = 0
    characters: int = 0
    texts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        self.count += 1
        self.characters += len(text)
        self.texts[text[:TEXT_CHARACTERS]] += 1
        if len(self.texts) > TEXTS_MAX:
            self.texts = Counter(dict(self.texts.most_common(TEXTS_MAX // 2)))


@dataclass
class Tally:
    """Counts of the examples that would be learned. `recent`: steps that tell how long one takes."""

    recent: Sequence[Pace] = ()
    examples: int = 0
    duplicates: int = 0
    tokens: int = 0
    seconds: float = 0.0
    by: Counter[tuple[str, str]] = field(default_factory=Counter)
    """by model and agent, either of which may be unknown"""
    stripped: dict[str, Stripped] = field(default_factory=dict)
    leaks: list[dict[str, Any]] = field(default_factory=list)
    """examples that hold a probe: path, line, example, and what it `holds`"""

    def add(self, tokens: int, model: str, agent: str, removed: Iterable[Removed]) -> None:
        """One example."""
        self.examples += 1
        self.tokens += tokens
        self.seconds += expected_s(self.recent, tokens) or 0.0
        self.by[model, agent] += 1
        for one in removed:
            self.stripped.setdefault(one.why, Stripped()).add(one.text)

    @property
    def hours(self) -> float | None:
        """Of steps; None where no step tells how long one takes."""
        known = any(pace.tokens > 0 for pace in self.recent)
        return self.seconds / 3600 if known else None

    def object(self) -> dict[str, Any]:
        """As JSON values, the most frequent first."""
        hours = self.hours
        return {
            "examples": self.examples,
            "duplicates": self.duplicates,
            "leaks": self.leaks,
            "tokens": self.tokens,
            "hours": None if hours is None else round(hours, 6),
            "by": [{"model": model, "agent": agent, "examples": n} for (model, agent), n in self.by.most_common()],
            "stripped": [
                {
                    "rule": rule,
                    "count": one.count,
                    "characters": one.characters,
                    "frequent": [{"text": text, "count": n} for text, n in one.texts.most_common(FREQUENT)],
                }
                for rule, one in sorted(self.stripped.items(), key=lambda item: -item[1].count)
            ],
        }
