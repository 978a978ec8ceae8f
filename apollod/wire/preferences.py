"""What preferences are learned from: a pair of answers to one conversation, of which one is better, or one answer that
was rated; each with the log-probabilities that the reference gave its tokens.

The reference holds the model near what it was. It is the weights that gave the answer, or the untrained ones, never
those of the step: then the difference would be 0 and hold nothing. Its log-probabilities are a file beside the journal,
f32, little-endian, one for each learned token, of a pair first those of the better answer.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from apollod.errors import RecordRefused

Beta = Annotated[float, Meta(gt=0.0)]


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file's digest, and the weights that gave the log-probabilities: `kind` base (untrained) or sampled (those
    that gave the answer, of this `version`)."""

    digest: str
    kind: Literal["base", "sampled"] = "sampled"
    version: int = -1


class PairTerms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a pair is learned. `smoothing`: chance that the pair is the wrong way round; `robust`: that is corrected for,
    else it is hedged against; `sft`: weight of the better answer's own loss."""

    beta: Beta = 0.1
    smoothing: Annotated[float, Meta(ge=0.0, lt=0.5)] = 0.0
    robust: bool = False
    sft: Annotated[float, Meta(ge=0.0)] = 0.0


class RatedTerms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a rated answer is learned. `zero`: the divergence from the reference on other questions, in nats an answer
    (z0 of KTO), as it was when the answer was queued; `weight`: of answers of this rating."""

    beta: Beta = 0.1
    zero: Annotated[float, Meta(ge=0.0)] = 0.0
    weight: Annotated[float, Meta(gt=0.0)] = 1.0


def log_probabilities(data: bytes, count: int) -> array[float]:
    """The values in a reference's file. Raises RecordRefused unless there are `count`, none of them above 0 by more
    than rounding."""
    if len(data) != 4 * count:
        raise RecordRefused(
            f"its reference has {len(data) / 4:g} log-probabilities for {count} learned tokens", "score it again"
        )
    found = array("f", data)
    for place, value in enumerate(found, 1):
        if not -9000.0 < value <= 0.001:  # also false for NaN; -9999 is how vLLM writes one that is none
            raise RecordRefused(f"its reference gave token {place} the log-probability {value:g}", "score it again")
    return found
