"""Precision and recall of apollod/curation/redaction.py on a labelled sample that its rules were not made from.

The sample is drawn from the shapes that vendors document and from the ways in which settings are written, in records
as agents' logs have them (benchmarks/redaction). It has two halves, which share kinds but not carriers, names or
templates: rules may be mended by what the first one shows (`--misses`), and the second one judges.

A secret counts as found if no eight characters of it in a row are left. Recall is over texts with a secret, precision
over placeholders, specificity over texts without one; intervals are Wilson's, of 95%.
"""

from apollod.curation.redaction import redact
from benchmarks import report
from benchmarks.redaction.draw import HALVES
from benchmarks.redaction.measure import Counted, Share, count
from benchmarks.redaction.sample import EACH, sample

SEED = 14


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
    arguments.add_argument("--misses", choices=HALVES, help="show what was missed and what was taken for a secret")
    args = arguments.parse_args()
    counted = {half: count(sample(args.seed, n, args.each), redact) for n, half in enumerate(HALVES)}
    if args.misses:
        _show(counted[args.misses])
        return
    figures: dict[str, float] = {}
    for half, each in counted.items():
        figures |= _figures(half, each)
    judged = counted[HALVES[1]]
    goals = {
        "recall": report.goal(judged.recall.value, 0.95, at_most=False),
        "precision": report.goal(judged.precision.value, 0.95, at_most=False),
    }
    report.report("redaction", figures, {}, goals, threads=1, as_json=args.json)


def _show(counted: Counted) -> None:
    for one in counted.missed:
        print(f"missed  {one.kind}: {one.text}")
    for one, taken in counted.alarms:
        print(f"taken   {one.kind}: {taken!r} in {one.text[:300]}")


if __name__ == "__main__":
    main()
