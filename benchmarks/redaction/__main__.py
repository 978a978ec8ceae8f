"""Measures precision and recall of apollod/curation/redaction.py on samples that its rules were not made from.

The sample is drawn from the shapes that vendors document and from the ways in which settings are written, in records as
agents' logs have them (benchmarks/redaction). It has two halves, which share kinds but not carriers, names or
templates: rules may be improved with the first one (`--misses`), and the second one judges.

With checkouts of gitleaks and trufflehog, also the secrets in the tests of their rules and detectors: in the texts in
which they stand there, in gitleaks' templates and alone, and what gitleaks must not find: half of the rules and
detectors are for looking, as above (`others.py`).

The level for personal data (`[redaction] personal`) has a sample of its own (`personal.py`), and is measured on it with
the level on.

A secret counts as found if no eight consecutive characters of it are left. Recall is over texts with a secret,
precision over placeholders, specificity over texts without one; intervals are Wilson's, of 95%.
"""

import re
from pathlib import Path
from typing import Any

from apollod.curation.redaction import redact, use
from benchmarks import report
from benchmarks.redaction import personal
from benchmarks.redaction.draw import HALVES, Sample
from benchmarks.redaction.measure import Counted, Share, count
from benchmarks.redaction.others import HARMLESS, half, sets
from benchmarks.redaction.sample import EACH, sample

SEED = 14
_LIKE_A_HASH = re.compile(r"(?i)[0-9a-f:_-]+")
"""hexadecimal digits, a UUID or a number, which without context cannot be told from a hash"""


def _named(name: str, share: Share) -> dict[str, float]:
    low, high = share.interval()
    return {name: share.value, f"{name}, low": low, f"{name}, high": high, f"{name}, count": share.total}


def _figures(half: str, counted: Counted) -> dict[str, float]:
    figures = _named(f"{half}/recall", counted.recall)
    figures |= _named(f"{half}/precision", counted.precision) | _named(f"{half}/specificity", counted.specificity)
    for name, kinds in (("recall", counted.found), ("specificity", counted.kept)):
        for kind, hits in kinds.items():
            figures |= _named(f"{half}/{name}/{kind}", Share(sum(hits), len(hits)))
    return figures


def main() -> None:
    arguments = report.parser(__doc__ or "")
    arguments.add_argument("--seed", type=int, default=SEED)
    arguments.add_argument("--each", type=int, default=EACH, help="texts of each kind in each half")
    arguments.add_argument("--gitleaks", type=Path, help="a checkout of github.com/gitleaks/gitleaks")
    arguments.add_argument("--trufflehog", type=Path, help="a checkout of github.com/trufflesecurity/trufflehog")
    arguments.add_argument("--misses", choices=HALVES, help="show what was missed and what was taken for a secret")
    args = arguments.parse_args()
    counted = {half: count(sample(args.seed, n, args.each), redact) for n, half in enumerate(HALVES)}
    told = _with_personal_data(args.seed)
    others = sets(args.gitleaks, args.trufflehog, args.seed)
    if args.misses:
        _show(told[args.misses])
        for samples in ([], *others.values()):
            _show(count(half(samples, HALVES.index(args.misses)), redact) if samples else counted[args.misses])
        return
    figures: dict[str, float] = {}
    for title, each in counted.items():
        figures |= _figures(title, each)
    for title, each in told.items():
        figures |= _figures(f"personal data, {title}", each)
    judged = counted[HALVES[1]]
    goals = {
        "recall": report.goal(judged.recall.value, 0.95, at_most=False),
        "precision": report.goal(judged.precision.value, 0.95, at_most=False),
    }
    for name, samples in others.items():
        _other(name, samples, figures, goals)
    missing = [name for name in ("gitleaks", "trufflehog") if getattr(args, name) is None]
    report.report("redaction", figures, {}, goals, threads=1, missing=missing, as_json=args.json)


def _with_personal_data(seed: int) -> dict[str, Counted]:
    use(personal=True)
    try:
        return {half: count(personal.sample(seed, n), redact) for n, half in enumerate(HALVES)}
    finally:
        use(personal=False)


def _other(name: str, samples: list[Sample], figures: dict[str, float], goals: dict[str, Any]) -> None:
    """Add the figures of a set and of its halves, and its goal if it has one."""
    whole = count(samples, redact)
    if not whole.found:
        masked = Share(whole.specificity.total - whole.specificity.hits, whole.specificity.total)
        figures |= _named(f"{name}/masked", masked)
        if name == HARMLESS:
            goals[f"{name}, masked"] = report.goal(masked.value, 0.02, at_most=True)
        return
    figures |= _named(f"{name}/recall", whole.recall) | _named(f"{name}/precision", whole.precision)
    for number, title in enumerate(HALVES):
        figures |= _named(f"{name}/{title}/recall", count(half(samples, number), redact).recall)
    plain = [one for one in samples if not all(map(_LIKE_A_HASH.fullmatch, one.secrets))]
    figures |= _named(f"{name}/recall where it is not like a hash", count(plain, redact).recall)
    goals[f"{name}, recall"] = report.goal(whole.recall.value, 0.9, at_most=False)


def _show(counted: Counted) -> None:
    for one in counted.missed:
        print(f"missed  {one.kind}: {one.text}")
    for one, taken in counted.alarms:
        print(f"taken   {one.kind}: {taken!r} in {one.text[:300]}")


if __name__ == "__main__":
    main()
