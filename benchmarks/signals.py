"""What cues find and what they cost.

Precision and recall of each on the labelled sample (benchmarks/signal_sample), with Wilson intervals of 95%: of the
half that was held out, and of the one that phrases were tuned on. Then turns a second on one core, in CPU seconds, with
all that is recorded of what they show: as they stand in the sample, and in the middle of sessions, behind a hundred
messages and with outputs of tools that are 4 KB long, which the goal is about.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from apollod.core.rates import wilson
from apollod.curation.conversation import Moment, Remark, Said
from apollod.curation.formats.blocks import form
from apollod.curation.formats.reader import Bad, Cursor, Found, Limits
from apollod.curation.formats.table import READERS
from apollod.curation.moments import Rules
from apollod.curation.signals.evidence_of import evidence_of
from benchmarks import report
from benchmarks.signal_sample import Labelled, read
from benchmarks.signal_sample.sessions import log_of

TURNS_MIN = 5000.0  # a second
SECONDS, ROUNDS = 1.0, 3
EARLIER = 100  # messages
WORDS = "as it was said in the session before " * 15
OUTPUT = "src/module_name.py:120: a line of an output that is of no concern here\n" * 57
SAYS = ("check", "rating", "evaluation")
"""Kinds that are good or bad"""

Score = tuple[int, int, int]
"""(found, wrongly found, missed)"""


def main() -> None:
    """Measure and print."""
    args = report.parser(__doc__ or "").parse_args()
    figures: dict[str, float] = {}
    for half in ("held_out", "tuning"):
        scores = score(half)
        scores["all"] = tuple(sum(one[n] for one in scores.values()) for n in range(3))  # type: ignore[assignment]
        for cue, (found, wrong, missed) in sorted(scores.items()):
            for name, of in (("precision", found + wrong), ("recall", found + missed)):
                low, high = wilson(found, of)
                figures[f"{half}.{cue}.{name}"] = found / of if of else math.nan
                figures |= {f"{half}.{cue}.{name}_low": low, f"{half}.{cue}.{name}_high": high}
            figures |= {f"{half}.{cue}.marked": found + missed, f"{half}.{cue}.found": found + wrong}
    figures = {name: value for name, value in figures.items() if not math.isnan(value)}
    moments = [moment for half in ("held_out", "tuning") for one in read(half) for moment in moments_of(one)]
    figures["short_turns_per_s"] = max(_rate(moments) for _ in range(ROUNDS))
    long = [_in_a_session(moment) for moment in moments]
    figures["turns_per_s"] = max(_rate(long) for _ in range(ROUNDS))
    goals = {"turns_per_s": report.goal(figures["turns_per_s"], TURNS_MIN, False)}
    report.report("signals", figures, {}, goals, threads=1, as_json=args.json)


def moments_of(labelled: Labelled) -> Iterator[Moment | Remark]:
    """What a reader makes of the session in which a labelled moment stands alone."""
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
    """For each cue, how often it is found where a person marks it, where nobody does, and where it is missed."""
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
    """The same behind earlier turns, and with longer outputs."""
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
