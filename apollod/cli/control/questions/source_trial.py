"""`apollod ctl source test PATH`: what would be learned of logs, before anybody learns it. Needs no daemon."""

import argparse
import json
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from apollod.adapters.ipc.token_viewer import counting
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.trial import Trial, Tried
from apollod.cli.control.questions import example_text, rows, source_answers
from apollod.cli.control.questions.source_answers import Answers
from apollod.cli.render import plain
from apollod.core.intake.evidence import Evidence
from apollod.core.settings import OptimizerSettings
from apollod.curation import redaction
from apollod.curation.moments import Learned, Rules
from apollod.curation.stripping import Stripping
from apollod.supervisor.config import load_config
from apollod.supervisor.quality.leak_watch import would_hold

BAD_SHOWN = 5


def run(args: argparse.Namespace) -> int:
    """Read everything, print what would become of it."""
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
        print(json.dumps({**_object(trial, examples, bad), "leaks": leaks, "sources": sources, **counted}))
        return 0
    names = ", ".join(f"{name} ({files} files)" if files > 1 else name for name, files in trial.formats.items())
    print(f"format      {names}\nrecords     {trial.records}\nexamples    {total}\nquarantined {refused}")
    print(plain("\n".join(source_answers.lines(sources))))
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
    if not total:
        _say_why(trial)
    return 0


def _say_why(trial: Trial) -> None:
    """A way out where nothing would be learned."""
    if any("another model" in what for what in trial.counts):
        print(
            "apollod: nothing would be learned: other models wrote the answers; --model '*' takes them", file=sys.stderr
        )
    else:
        print("apollod: nothing would be learned of it", file=sys.stderr)


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
        "schema_version": 1,
        "format": next(iter(trial.formats), ""),
        "formats": trial.formats,
        "records": trial.records,
        "examples": [_example(tried, shown) for tried in examples],
        "signals": [
            {"path": one.path, "line": one.line, "example": one.example, **_signal(one.evidence)}
            for one in trial.signals.values()
        ],
        **counts,
        "quarantined": [{"path": tried.path, "line": tried.line, "reason": tried.reason} for tried in bad],
    }


def _signal(one: Evidence) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "value": one.quote,
        "polarity": one.polarity,
        "strength": one.strength,
        "session": one.session,
        "records": list(one.records),
    }


def _example(tried: Tried, shown: dict[str, list[Evidence]]) -> dict[str, Any]:
    learned = tried.learned
    assert learned is not None
    record = json.loads(learned.record.canonical)
    messages = record.get("messages") or [{"role": name, "content": record[name]} for name in sorted(record)[::-1]]
    targets = ("assistant", "completion", "text")
    return {
        "id": learned.record.id,
        "path": tried.path,
        "line": tried.line,
        "messages": messages,
        "tools": record.get("tools", []),
        "trained": [n for n, m in enumerate(messages) if m["role"] in targets and m.get("weight", 1)],
        "stripped": [one.text for one in learned.removed],
        "signals": [_signal(one) for one in shown.get(learned.record.id, ())],
        "model": learned.origin.model,
        "session": learned.origin.session,
        "records": list(learned.origin.records),
    }
