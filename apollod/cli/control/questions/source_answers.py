"""Counts for `source test`, by file: answers found, answers that would be learned or held, and reasons for the rest.

An answer counts as learned only if the trainer's own code encoded it; without a tokenizer the output says that this
was not tried.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from apollod.adapters.sources.trial import Trial, Tried
from apollod.core.inputs import Line
from apollod.core.intake.evidence import speaks_against
from apollod.core.intake.repeats import Known
from apollod.wire.token_view import ExampleCount

AGAIN = "said before: it is learned once"
UNTRIED = "not tried with a tokenizer"
FILES_SHOWN = 20


class _Answer(NamedTuple):
    """An answer that would become an example, or the `number` of answers of a row."""

    path: str
    number: int
    why: str


class Answers:
    """`held`: returns the reason to hold a record, or ""; `count`: the trainer's check of a record; None: no tokenizer
    is available."""

    def __init__(self, held: Callable[[bytes], str], count: Callable[[bytes], ExampleCount] | None) -> None:
        self._held = held
        self._count = count
        self._known = Known(set(), {}, {})
        self._answers: dict[str, _Answer] = {}
        self._waits: dict[str, str] = {}
        self.changes = Counter[str]()
        """changes made to examples so that they fit, see `ExampleEncoded`"""
        self.tokens = self.targets = 0
        self.leaks: list[dict[str, Any]] = []

    def add(self, tried: Tried) -> None:
        """An example, or a part of one answer."""
        learned = tried.learned
        assert learned is not None
        record, (responses, _) = learned.record, learned.taught
        key, part = (responses[0].key, responses[0].part) if len(responses) == 1 else (record.id, 0)
        line = Line(number=1, example=record.id, record=record.canonical, responses=responses)
        if not isinstance(self._known.sift(line, 0.0), tuple):
            if not part:
                again = f"{key} {len(self._answers)}"
                self._answers[again] = _Answer(tried.path, len(responses), AGAIN)
            return
        if holds := self._held(record.canonical):
            self._waits[key] = f"holds a probe: {holds}"
            self.leaks.append({"path": tried.path, "line": tried.line, "example": record.id, "holds": holds})
        why = UNTRIED
        if self._count is not None:
            found = self._count(record.canonical)
            why = found.refused
            self.tokens += found.tokens
            self.targets += found.targets
            self.changes.update(dict.fromkeys(found.changes, 1))
        before = self._answers.get(key)
        if before is None or (why and not before.why):
            self._answers[key] = _Answer(tried.path, max(1, len(responses)), why)

    def sources(self, trial: Trial) -> list[dict[str, Any]]:
        """For each file that was read, by name."""
        for shown in trial.signals.values():
            if speaks_against(shown.evidence.polarity, shown.evidence.strength):
                self._waits.setdefault(shown.evidence.answer, f"rejected ({shown.evidence.kind})")
        told: dict[str, dict[str, Any]] = {}
        for path, reasons in trial.answers.items():
            why = Counter({reason: count for reason, count in reasons.items() if reason != "learned"})
            told[path] = {"path": path, "found": reasons.total(), "learned": 0, "held": Counter(), "why": why}
        for key, answer in self._answers.items():
            own = told[answer.path]
            if answer.why and answer.why != UNTRIED:
                own["why"][answer.why] += answer.number
            elif key in self._waits:
                own["held"][self._waits[key]] += answer.number
            elif answer.why:
                own["why"][UNTRIED] += answer.number
            else:
                own["learned"] += answer.number
        if self._count is None:
            told = {path: {**one, "learned": None} for path, one in told.items()}
        return [{**one, "held": dict(one["held"]), "why": dict(one["why"])} for one in told.values() if one["found"]]


def lines(sources: list[dict[str, Any]]) -> list[str]:
    """Readable output: totals, then the files."""
    found = sum(one["found"] for one in sources)
    tried = all(one["learned"] is not None for one in sources)
    held, why = Counter[str](), Counter[str]()
    for one in sources:
        held.update(one["held"])
        why.update(one["why"])
    learned = sum(one["learned"] or 0 for one in sources)
    how = f", {learned} would be learned, {held.total()} held" if tried and found else ""
    said = [f"answers     {found} found{how}"]
    if found and not tried:
        said.append("            which of them can be learned was not tried: --config or --model-dir names a tokenizer")
    said += [f"{count:>11} held: {reason}" for reason, count in held.most_common()]
    said += [f"{count:>11} not learned: {reason}" for reason, count in why.most_common() if reason != UNTRIED]
    if len(sources) > 1:
        said += [_of(one) for one in sources[:FILES_SHOWN]]
        if len(sources) > FILES_SHOWN:
            said.append(f"            and {len(sources) - FILES_SHOWN} more files; --json has all of them")
    return said


def _of(one: Mapping[str, Any]) -> str:
    learned = "-" if one["learned"] is None else one["learned"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in {**one["held"], **one["why"]}.items())
    return f"            {one['found']} found, {learned} learned: {one['path'][-60:]}" + (
        f" ({reasons})" if reasons else ""
    )
