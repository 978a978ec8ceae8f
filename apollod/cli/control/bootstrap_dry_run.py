"""`apollod ctl bootstrap SOURCE --dry-run`: amount to learn, time it takes, text to strip.

Needs no daemon, changes nothing.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from apollod.adapters.journal import known_examples
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.trial import Trial, Tried
from apollod.adapters.tokens import token_counter
from apollod.cli import render
from apollod.cli.control import rows
from apollod.core.facts.bootstrap import BootstrapRequested
from apollod.core.facts.intake.events import Removed
from apollod.core.facts.intake.repeats import Known
from apollod.core.facts.training import KEPT, Pace, expected_s
from apollod.core.inputs import Line
from apollod.curation import redaction
from apollod.curation.moments import Learned, Rules
from apollod.curation.signatures import signature
from apollod.curation.stripping import Stripping
from apollod.errors import ConfigError
from apollod.supervisor.bootstrapping import terms_of
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.dreaming.tested_answers import NOT_SHOWN, passing
from apollod.supervisor.quality.leak_watch import would_hold
from apollod.supervisor.sources import format_problem

BATCH = 256
_PACE = f"SELECT tokens, seconds FROM steps WHERE applied = 1 ORDER BY seq DESC LIMIT {KEPT}"
SHOWN_CHARACTERS = 100
LEAKS_SHOWN = 5
DROPPED = "dropped: "


class _Beside(NamedTuple):
    """Parameters of a dry run from the configuration."""

    terms: Terms
    journal: Path | None = None
    model: Path | None = None
    max_tokens: int | None = None
    held: Callable[[bytes], str] = lambda record: ""
    """Returns the part of a probe that a record holds, or ""."""


def run(args: argparse.Namespace, wanted: BootstrapRequested) -> int:
    """Read everything, and print the result."""
    if (problem := format_problem(wanted.format)) is not None:
        raise ConfigError(*problem)
    beside = _beside(load_config(args.config) if args.config else None, wanted)
    trial = Trial(beside.terms, wanted.format)
    count, how = token_counter(beside.model)
    tally, quarantined = Tally(_pace(beside.journal)), 0
    check = wanted.check if not wanted.judged else None
    with ExitStack() as stack:
        journal = stack.enter_context(known_examples.opened(beside.journal)) if beside.journal else None
        known, near = Known(set(), {}, {}), beside.terms.near_duplicate
        for tried in _batches(trial.read(Path(wanted.path))):
            quarantined += sum(one.learned is None for one in tried)
            read = [one for one in tried if one.learned is not None]
            if check is not None:
                told = anyio.run(passing, check, [one.learned.record.canonical for one in read if one.learned])
                read = [one for one, passes in zip(read, told, strict=True) if passes]
                trial.unlearned[NOT_SHOWN] += told.count(False)
            found = [one.learned for one in read if one.learned is not None]
            lines = [_line(learned) for learned in found]
            if journal is not None:
                journal.tell(known, lines, near=bool(near))
            for one, learned, line in zip(read, found, lines, strict=True):
                if not isinstance(known.sift(line, near), tuple):
                    tally.duplicates += 1
                    continue
                if holds := beside.held(line.record):
                    tally.leaks.append({"path": one.path, "line": one.line, "example": line.example, "holds": holds})
                    continue
                tokens = min(count(_text(learned)), beside.max_tokens or 1 << 62)
                tally.add(tokens, learned.origin.model, learned.origin.agent, learned.removed)
    answer = {
        "path": wanted.path, "dry_run": True, "strip": wanted.strip, "formats": trial.formats,
        "records": trial.records, **tally.object(), "tokens_by": how, "rejected": quarantined,
        "dropped": dict(sorted(trial.unlearned.items())), "skipped": _skipped(trial), "judged": wanted.judged,
        "journal": str(beside.journal) if beside.journal else None,
    }  # fmt: skip
    return render.show(args, answer, lambda: _page(answer))


def _beside(config: Config | None, wanted: BootstrapRequested) -> _Beside:
    redaction.use(config is not None and config.redaction.personal)
    if config is None:
        stripping = Stripping(wanted.strip, wanted.strip_patterns, wanted.instruction)
        return _Beside(Terms(Rules(wanted.models or ("apollo",), wanted.sidechains, stripping=stripping)))
    journal = config.journal_path if config.journal_path.exists() else None
    terms = terms_of(config, wanted)
    model = Path(config.model.path).expanduser()
    return _Beside(terms, journal, model, config.trainer.max_tokens, would_hold(config))


def _pace(journal: Path | None) -> list[Pace]:
    """Pace of the last steps, the newest last."""
    found = rows.tuples(str(journal), _PACE) if journal is not None else []
    return [Pace(tokens, seconds) for tokens, seconds in reversed(found)]


def _batches(tried: Iterable[Tried]) -> Iterator[list[Tried]]:
    rest = iter(tried)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _line(learned: Learned) -> Line:
    responses, text = learned.taught
    return Line(
        number=1, example=learned.record.id, record=learned.record.canonical, responses=responses,
        signature=signature(text),
    )  # fmt: skip


def _text(learned: Learned) -> str:
    """Text of an example, roughly as the model's template writes it."""
    record = json.loads(learned.record.canonical)
    if "messages" not in record:
        return "".join(record[name] for name in ("prompt", "completion", "text") if name in record)
    parts = [json.dumps(record["tools"])] if record.get("tools") else []
    for message in record["messages"]:
        parts += [message["role"], message.get("reasoning_content") or "", message.get("content") or ""]
        parts += [json.dumps(call["function"]) for call in message.get("tool_calls", ())]
    return "\n".join(part for part in parts if part)


def _skipped(trial: Trial) -> dict[str, int]:
    """Counts of records that are not answers, by reason."""
    counts = {what.removeprefix(DROPPED): n for what, n in sorted(trial.counts.items()) if what.startswith(DROPPED)}
    return {what: left for what, n in counts.items() if (left := n - trial.unlearned[what])}


def _page(a: dict[str, Any]) -> list[str]:
    names = ", ".join(f"{name} ({files} files)" if files > 1 else name for name, files in a["formats"].items())
    known = "in it or in the journal" if a["journal"] else "in it; --config counts also what the journal knows"
    lines = [
        f"source      {a['path']}: {names}",
        f"records     {a['records']}, {a['rejected']} of them would be quarantined",
        f"examples    {a['examples']}; {a['duplicates']} more are there already ({known})",
        *(f"            {one['examples']} {_whose(one)}" for one in a["by"]),
        *_leaks(a["leaks"]),
        f"tokens      {a['tokens']}, {a['tokens_by']}",
        f"time        {_time(a)}",
        *(f"{count:>11} answers dropped: {what}" for what, count in a["dropped"].items()),
        *(f"{count:>11} skipped: {what}" for what, count in a["skipped"].items()),
        *(["check       the judge is asked about each: what does not show the pattern is not learned"] * a["judged"]),
        f"strip       {a['strip']}" + ("" if a["stripped"] else ": there is nothing to take out"),
    ]
    for rule in a["stripped"]:
        lines.append(f"{rule['count']:>11} by rule {rule['rule']}, {rule['characters']} characters; most often:")
        lines += [f"{one['count']:>15}x {render.cut(one['text'], SHOWN_CHARACTERS)}" for one in rule["frequent"]]
    if not a["examples"]:
        lines.append(_why_nothing(a))
    return lines


def _leaks(found: list[dict[str, Any]]) -> list[str]:
    places = [f"            {one['path']}:{one['line']} holds {one['holds']}" for one in found]
    shown = render.first(places, LEAKS_SHOWN, "            and {} more")
    return [f"held        {len(found)} more would wait for a person:", *shown] if found else []


def _whose(one: dict[str, Any]) -> str:
    model, agent = one["model"] or "a model that is not named", one["agent"]
    return f"by {model}" + (f" in {agent}" if agent else ", given as records")


def _time(a: dict[str, Any]) -> str:
    if a["hours"] is None:
        return "unknown without steps: " + ("none was made yet" if a["journal"] else "--config names the journal")
    return f"about {render.duration(a['hours'] * 3600)} of steps, by the last ones in the journal"


def _why_nothing(a: dict[str, Any]) -> str:
    if any("another model" in what for what in a["dropped"]):
        return "nothing would be learned: other models wrote the answers; --model '*' takes them"
    return "nothing would be learned of it"


FREQUENT = 3
TEXTS_MAX = 10_000
"""Most texts of a rule that are counted one by one; beyond it the rarer half is dropped, so that a source in which all
differ needs no more memory than one in which none do."""
TEXT_CHARACTERS = 500
"""Characters of a text that are shown."""


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
    """Examples by model and agent, either of which may be unknown."""
    stripped: dict[str, Stripped] = field(default_factory=dict)
    leaks: list[dict[str, Any]] = field(default_factory=list)
    """Examples that hold a probe: path, line, example, and the part (`holds`)."""

    def add(self, tokens: int, model: str, agent: str, removed: Iterable[Removed]) -> None:
        """Count one example."""
        self.examples += 1
        self.tokens += tokens
        self.seconds += expected_s(self.recent, tokens) or 0.0
        self.by[model, agent] += 1
        for one in removed:
            self.stripped.setdefault(one.why, Stripped()).add(one.text)

    @property
    def hours(self) -> float | None:
        """Duration of all steps; None if no step tells how long one takes."""
        known = any(pace.tokens > 0 for pace in self.recent)
        return self.seconds / 3600 if known else None

    def object(self) -> dict[str, Any]:
        """The counts as JSON values, the most frequent first."""
        hours = self.hours
        rules = sorted(self.stripped.items(), key=lambda item: -item[1].count)
        return {
            "examples": self.examples, "duplicates": self.duplicates, "leaks": self.leaks, "tokens": self.tokens,
            "hours": None if hours is None else round(hours, 6),
            "by": [{"model": model, "agent": agent, "examples": n} for (model, agent), n in self.by.most_common()],
            "stripped": [
                {"rule": rule, "count": one.count, "characters": one.characters,
                 "frequent": [{"text": text, "count": n} for text, n in one.texts.most_common(FREQUENT)]}
                for rule, one in rules
            ],
        }  # fmt: skip
