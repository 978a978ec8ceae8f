"""`apollod ctl source test PATH`: examples that logs would give, before anything is learned. Needs no daemon.

An answer counts as learned only if the trainer's own code encoded it; without a tokenizer the output says that this was
not tried.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.trial import Trial, Tried
from apollod.adapters.tokens import counting
from apollod.cli import render
from apollod.cli.control import rows
from apollod.cli.control.examples import example_text
from apollod.cli.render import plain
from apollod.core.facts.intake.events import Evidence, speaks_against
from apollod.core.facts.intake.repeats import Known
from apollod.core.inputs import Line
from apollod.core.settings import OptimizerSettings
from apollod.curation import redaction
from apollod.curation.moments import Learned, Rules
from apollod.curation.stripping import Stripping
from apollod.supervisor.config import load_config
from apollod.supervisor.quality.leak_watch import would_hold
from apollod.wire.pipe_messages import ExampleCount

BAD_SHOWN = 5
AGAIN = "said before: it is learned once"
UNTRIED = "not tried with a tokenizer"
FILES_SHOWN = 20


class _Answer(NamedTuple):
    """An answer that would become an example, or the `number` of answers of a row."""

    path: str
    number: int
    why: str


class Answers:
    """Counts of answers by file: found, learned, held, and reasons for the rest. `held`: returns the reason to hold a
    record, or ""; `count`: the trainer's check of a record; None: no tokenizer is available."""

    def __init__(self, held: Callable[[bytes], str], count: Callable[[bytes], ExampleCount] | None) -> None:
        self._held = held
        self._count = count
        self._known = Known(set(), {}, {})
        self._answers: dict[str, _Answer] = {}
        self._waits: dict[str, str] = {}
        self.changes = Counter[str]()
        """Changes made to examples so that they fit, see `ExampleEncoded`."""
        self.tokens = self.targets = 0
        self.leaks: list[dict[str, Any]] = []

    def add(self, tried: Tried) -> None:
        """Count an example, or a part of one answer."""
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
        """Counts for each file that was read, by name."""
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


def run(args: argparse.Namespace) -> int:
    """Read everything, and print the result."""
    config = load_config(args.config) if args.config else None
    redaction.use(config is not None and config.redaction.personal)
    held = would_hold(config) if config else lambda record: ""
    most = config.trainer.max_tokens if config else OptimizerSettings().max_tokens
    model_dir = args.model_dir or (str(Path(config.model.path).expanduser()) if config else "")
    with counting(model_dir, most) if model_dir and Path(model_dir).is_dir() else nullcontext(None) as count:
        return _run(args, Answers(held, count), most)


def _run(args: argparse.Namespace, answers: Answers, max_tokens: int) -> int:
    rules = Rules(tuple(args.model or ["apollo"]), args.sidechains, max_tokens, Stripping(args.strip))
    trial = Trial(Terms(rules), args.format)
    examples, bad, total, refused = list[Tried](), list[Tried](), 0, 0
    for tried in trial.read(Path(args.path).expanduser()):
        if tried.learned is None:
            refused += 1
            bad += [tried] if args.json or len(bad) < BAD_SHOWN else []
        else:
            total += 1
            answers.add(tried)
            examples += [tried] if args.json or len(examples) < args.examples else []
    sources, leaks = answers.sources(trial), answers.leaks
    if args.json:
        counted = {"tokens": answers.tokens, "trained": answers.targets, "changes": dict(answers.changes)}
        render.print_object({**_object(trial, examples, bad), "leaks": leaks, "sources": sources, **counted})
        return 0
    names = ", ".join(f"{name} ({files} files)" if files > 1 else name for name, files in trial.formats.items())
    print(f"format      {names}\nrecords     {trial.records}\nexamples    {total}\nquarantined {refused}")
    print(plain("\n".join(_lines(sources))))
    if leaks:
        print(f"held        {len(leaks)} of them would wait for a person, since they hold a probe")
    if answers.tokens:
        print(f"tokens      {answers.tokens} in {total} examples, {answers.targets} of them trained")
    for what, number in answers.changes.most_common():
        print(f"{number:>11} examples changed: {what}")
    for what, count in sorted(trial.counts.items()):
        print(plain(f"{count:>11} {what}"))
    for what, count in _by_kind(trial).items():
        print(f"{count:>11} signals: {what}")
    shown = _by_example(trial)
    for tried in examples:
        _print_example(tried, shown)
    for leak in leaks[:BAD_SHOWN]:
        print(plain(f"\n{rows.end_of(leak['path'])}:{leak['line']}: would be held: holds {leak['holds']}"))
    for tried in bad:
        print(plain(f"\n{rows.end_of(tried.path)}:{tried.line}: {tried.reason}"))
    if total > len(examples):
        print(f"\napollod: {total - len(examples)} more examples; raise --examples, or --json for all", file=sys.stderr)
    if not total and any("another model" in what for what in trial.counts):
        render.say("nothing would be learned: other models wrote the answers; --model '*' takes them")
    elif not total:
        render.say("nothing would be learned of it")
    return 0


def _by_kind(trial: Trial) -> dict[str, int]:
    kinds = Counter(_kind(one.evidence) for one in trial.signals.values())
    return dict(sorted(kinds.items()))


def _kind(evidence: Evidence) -> str:
    return f"{evidence.kind}, {evidence.polarity}" if evidence.kind != evidence.polarity else evidence.kind


def _by_example(trial: Trial) -> dict[str, list[Evidence]]:
    shown: dict[str, list[Evidence]] = {}
    for one in trial.signals.values():
        shown.setdefault(one.example, []).append(one.evidence)
    return shown


def _print_example(tried: Tried, shown: dict[str, list[Evidence]]) -> None:
    learned = tried.learned
    assert learned is not None
    origin = learned.origin
    told = [f"session {origin.session}"] if origin.session else []
    told += [f"by {origin.model}"] if origin.model else []
    first = f"{origin.first_line}-" if origin.first_line else ""
    print(plain(f"\n--- {learned.record.id}  {rows.end_of(tried.path)}:{first}{tried.line}  {', '.join(told)}"))
    for one in shown.get(learned.record.id, ()):
        print(plain(f"    signal {_kind(one)} ({one.strength:g}): {one.quote}"))
    print("\n".join(example_text.lines(json.loads(learned.record.canonical), _removed(learned))[1:]))


def _removed(learned: Learned) -> list[dict[str, Any]]:
    return [{"place": r.place, "at": r.at, "text": r.text, "why": r.why, "role": r.role} for r in learned.removed]


def _object(trial: Trial, examples: list[Tried], bad: list[Tried]) -> dict[str, Any]:
    shown = _by_example(trial)
    counts = {"unknown": {}, "dropped": {}, "redacted": {}}  # type: dict[str, dict[str, int]]
    for what, count in sorted(trial.counts.items()):
        group, _, name = what.partition(": ")
        counts[group][name] = count
    return {
        "format": next(iter(trial.formats), ""), "formats": trial.formats,
        "records": trial.records, "examples": [_example(tried, shown) for tried in examples],
        "signals": [
            {"path": one.path, "line": one.line, "example": one.example, **_signal(one.evidence)}
            for one in trial.signals.values()
        ],
        **counts,
        "quarantined": [{"path": tried.path, "line": tried.line, "reason": tried.reason} for tried in bad],
    }  # fmt: skip


def _signal(one: Evidence) -> dict[str, Any]:
    return {
        "kind": one.kind, "value": one.quote, "polarity": one.polarity, "strength": one.strength,
        "session": one.session, "records": list(one.records),
    }  # fmt: skip


def _example(tried: Tried, shown: dict[str, list[Evidence]]) -> dict[str, Any]:
    learned = tried.learned
    assert learned is not None
    record = json.loads(learned.record.canonical)
    messages = record.get("messages") or [{"role": name, "content": record[name]} for name in sorted(record)[::-1]]
    targets = ("assistant", "completion", "text")
    return {
        "id": learned.record.id, "path": tried.path, "line": tried.line, "messages": messages,
        "tools": record.get("tools", []),
        "trained": [n for n, m in enumerate(messages) if m["role"] in targets and m.get("weight", 1)],
        "stripped": [one.text for one in learned.removed],
        "signals": [_signal(one) for one in shown.get(learned.record.id, ())], "model": learned.origin.model,
        "session": learned.origin.session, "records": list(learned.origin.records),
    }  # fmt: skip


def _lines(sources: list[dict[str, Any]]) -> list[str]:
    """Lines about the answers: totals, then the files."""
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
        files = [_of(one) for one in sources]
        said += render.first(files, FILES_SHOWN, "            and {} more files; --json has all of them")
    return said


def _of(one: Mapping[str, Any]) -> str:
    learned = "-" if one["learned"] is None else one["learned"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in {**one["held"], **one["why"]}.items())
    return f"            {one['found']} found, {learned} learned: {one['path'][-60:]}" + (
        f" ({reasons})" if reasons else ""
    )
