"""Measures the accuracy and the speed of cues.

Precision and recall of each on the labelled sample (benchmarks/signal_sample), with Wilson intervals of 95%: on the
held-out half, and on the one that phrases were tuned on. Then turns a second on one core, in CPU seconds, with all
evidence recorded: as they stand in the sample, and in the middle of sessions, after a hundred messages and with tool
outputs of 4 KB, to which the goal applies.

With --moments DIR also on moments from other people's logs, in clones below DIR
(benchmarks/signal_sample/elsewhere.py): turns that reject an answer (`rejects`), by language and agent, and outcomes of
checks; and the MB of text a second that cues search there. Missing repositories are named.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from apollod.core.rates import wilson
from apollod.curation.conversation import Moment, Remark, Said
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits
from apollod.curation.formats.table import READERS
from apollod.curation.formats.turns import form
from apollod.curation.moments import Rules
from apollod.curation.signals.cues import evidence_of, flags
from benchmarks import report
from benchmarks.signal_sample import Labelled, elsewhere, read
from benchmarks.signal_sample.sessions import log_of

TURNS_MIN = 5000.0  # a second
RECALL_MIN, PRECISION_MIN = 0.8, 0.9
SECONDS, ROUNDS = 1.0, 3
EARLIER = 100  # messages
WORDS = "as it was said in the session before " * 15
OUTPUT = "src/module_name.py:120: a line of an output that is of no concern here\n" * 57
SAYS = ("check", "rating", "evaluation")
"""kinds that have a polarity"""

Score = tuple[int, int, int]
"""(found, wrongly found, missed)"""


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--moments", type=Path, metavar="DIR", help="clones with moments that others wrote")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    for half in ("held_out", "tuning"):
        scores = score(half)
        scores["all"] = tuple(sum(one[n] for one in scores.values()) for n in range(3))  # type: ignore[assignment]
        figures |= _figures(half, scores)
    moments = [moment for half in ("held_out", "tuning") for one in read(half) for moment in moments_of(one)]
    figures["short_turns_per_s"] = max(_rate(moments) for _ in range(ROUNDS))
    long = [_in_a_session(moment) for moment in moments]
    figures["turns_per_s"] = max(_rate(long) for _ in range(ROUNDS))
    goals = {"turns_per_s": report.goal(figures["turns_per_s"], TURNS_MIN, False)}
    missing: list[str] = []
    if args.moments is not None:
        missing = _elsewhere(args.moments, figures)
        for name, bound in (("rejects.recall", RECALL_MIN), ("rejects.precision", PRECISION_MIN)):
            value = figures.get(f"elsewhere_{elsewhere.ROUNDS[-1]}.{name}", 0.0)
            goals[f"elsewhere.{name}"] = report.goal(value, bound, False)
    report.report("signals", figures, {}, goals, threads=1, missing=missing, as_json=args.json)


def _figures(half: str, scores: dict[str, Score]) -> dict[str, float]:
    """Precision and recall of each cue, with intervals."""
    figures: dict[str, float] = {}
    for cue, (found, wrong, missed) in sorted(scores.items()):
        for name, of in (("precision", found + wrong), ("recall", found + missed)):
            low, high = wilson(found, of)
            if of:
                figures |= {
                    f"{half}.{cue}.{name}": found / of,
                    f"{half}.{cue}.{name}_low": low,
                    f"{half}.{cue}.{name}_high": high,
                }
        figures |= {f"{half}.{cue}.marked": found + missed, f"{half}.{cue}.found": found + wrong}
    return figures


def _elsewhere(directory: Path, figures: dict[str, float]) -> list[str]:
    """Add figures of other people's moments; returns descriptions of the missing ones."""
    missing: list[str] = []
    for half in (f"elsewhere_{name}" for name in (*reversed(elsewhere.ROUNDS), "held_out", "tuning")):
        given, absent = elsewhere.moments(directory, half)
        missing += absent
        figures |= _figures(half, score_elsewhere(given))
        for kind in ("turn", "outcome"):
            figures[f"{half}.{kind}s"] = sum(one.kind == kind and one.label != "?" for one, _ in given)
        figures[f"{half}.undecided"] = sum(one.label == "?" for one, _ in given)
        if given:
            figures[f"{half}.mb_per_s"] = max(_mb_per_s([moment for _, moment in given]) for _ in range(ROUNDS))
    return missing


def score_elsewhere(given: list[tuple[elsewhere.Marked, Moment]]) -> dict[str, Score]:
    """Scores of other people's moments; a turn counts once, with any kind that rejects an answer."""
    scores: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for one, moment in given:
        if one.label == "?":
            continue
        shown, marked = set(elsewhere.shown(one, moment)), {one.label} - {"-"}
        if one.kind == "turn":
            found, wanted = bool(shown), bool(marked)
            place = 0 if found and wanted else 1 if found else 2
            names = ["rejects", f"rejects.{one.language}", f"rejects.{one.agent}"] if found or wanted else []
        else:
            for polarity in shown | marked:
                place = 0 if polarity in shown & marked else 1 if polarity in shown else 2
                for name in (f"check:{polarity}", f"check.{one.agent}", "check"):
                    scores[name][place] += 1
            continue
        for name in names:
            scores[name][place] += 1
    return {name: (one[0], one[1], one[2]) for name, one in scores.items()}


def _mb_per_s(moments: list[Moment]) -> float:
    """Megabytes of text searched in a second."""
    said = [[*one.messages, *((one.then,) if one.then is not None else ())] for one in moments]
    size = sum(len(str(turn.message["content"]).encode()) for turns in said for turn in turns)
    begin = time.process_time()
    for one in moments:
        flags(one)
    return size / (time.process_time() - begin) / 1e6


def moments_of(labelled: Labelled) -> Iterator[Moment | Remark]:
    """The moments and remarks that a reader finds in the session of one labelled moment."""
    reader, log, cursor = _READERS[labelled.format], log_of(labelled), Cursor()
    while True:
        folded = reader.fold(cursor, log[cursor.offset :], True, Limits())
        for item in folded.items:
            assert not isinstance(item, Found | Bad), f"line {labelled.number} of the sample: {item}"
            yield item
        if folded.cursor == cursor:
            return
        cursor = folded.cursor


def score(half: str) -> dict[str, Score]:
    """Counts for each cue: found where a person marked it, found elsewhere, and missed."""
    scores: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for labelled in read(half):
        found = Counter(
            f"{one.kind}:{one.polarity}" if one.kind in SAYS else one.kind
            for item in moments_of(labelled)
            for one in evidence_of(item, Rules())
        )
        marked = Counter(labelled.cues)
        for n, which in enumerate((found & marked, found - marked, marked - found)):
            for cue, times in which.items():
                scores[cue][n] += times
    return {cue: (one[0], one[1], one[2]) for cue, one in scores.items()}


def _in_a_session(item: Moment | Remark) -> Moment | Remark:
    """The same moment after earlier turns, and with longer outputs."""
    moment = item.about if isinstance(item, Remark) else item
    earlier = [
        Said(form(role, f"{role} {n} " + WORDS), prompt=role == "user", model="apollo")
        for n in range(EARLIER // 2)
        for role in ("user", "assistant")
    ]
    own = [
        msgspec.structs.replace(said, message={**said.message, "content": OUTPUT + said.message["content"]})
        if said.message["role"] == "tool"
        else said
        for said in moment.messages
    ]
    longer = msgspec.structs.replace(
        moment, messages=(*earlier, *own), fresh=moment.fresh + EARLIER, back_to=moment.back_to + EARLIER
    )
    return msgspec.structs.replace(item, about=longer) if isinstance(item, Remark) else longer


def _rate(moments: list[Moment | Remark]) -> float:
    """Turns a second."""
    turns, begin = 0, time.process_time()
    while (spent := time.process_time() - begin) < SECONDS:
        for moment in moments:
            evidence_of(moment, Rules())
        turns += len(moments)
    return turns / spent


_READERS = {reader.name: reader for reader in READERS}


if __name__ == "__main__":
    main()
