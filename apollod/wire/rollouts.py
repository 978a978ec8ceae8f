"""A group of rollouts: answers to one prompt that the served model sampled, each with its score, and how they are
learned. The bulk of it is a file beside the journal, named by the digest of its bytes.

The file is the zlib stream of a msgpack array (`Group`). Arrays of numbers are little-endian bytes: token ids u32, the
mask one byte a token (1: sampled by the model, and learned), log-probabilities f32, natural logarithms, one for each
token of the mask.
"""

from __future__ import annotations

import math
import zlib
from array import array
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from apollod.errors import RecordRefused

BYTES_MAX = 256 << 20
"""largest file, unpacked"""
SPREAD_MIN = 1e-6
"""least standard deviation of scores, as a share of their mean where that is above 1: scores that were computed in
float32 differ by 3e-8 where they are equal, and dividing by that would make advantages of it"""
MISSING = -9000.0
"""-9999 is how vLLM writes a log-probability that is none"""
ROUNDING = 0.001
"""by which a log-probability may be above 0"""

Mean = Literal["sequence", "token", "constant", "sum"]
"""sequence: over the tokens of each answer, then over answers. token: over all tokens. constant: the sum, over the
number of answers times `length`. sum: no division"""


class Terms(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a group is learned. `low`, `high`: bounds of the ratio to the sampler's probability; `dual`: another upper
    bound, for negative advantages (0: none); `truncate`: largest weight for the age of a rollout (0: none), the ratio
    is then to the weights of the step; `kl`: weight of the divergence from the reference; `beta`: weight of the
    quadratic term of `dro`; `divide`: advantages are divided by the standard deviation of the scores."""

    mean: Mean = "sequence"
    length: Annotated[int, Meta(ge=0)] = 0
    divide: bool = True
    low: Annotated[float, Meta(ge=0.0)] = 0.8
    high: Annotated[float, Meta(ge=0.0)] = 1.2
    dual: Annotated[float, Meta(ge=0.0)] = 0.0
    truncate: Annotated[float, Meta(ge=0.0)] = 0.0
    kl: Annotated[float, Meta(ge=0.0)] = 0.0
    beta: Annotated[float, Meta(ge=0.0)] = 0.1
    surrogate: Literal["least", "atropos"] = "least"


class Rollout(msgspec.Struct, frozen=True, array_like=True):
    """One answer after its prompt. `versions`: first and last version of the weights that sampled it, -1: not known;
    `reference`: log-probabilities of the reference, empty without one. `likeliest`, `told`: a teacher's k likeliest
    tokens before each learned token (ids u32 and log-probabilities f32, [targets, k]), empty without one.
    `coefficients`: dL/dlogp of each learned token, f32, empty unless the loss was computed elsewhere. `neutral`: its
    advantage is 0, whatever its score, which counts in the mean of the group."""

    ids: bytes
    mask: bytes
    logprobs: bytes
    score: float
    temperature: float = 1.0
    versions: tuple[int, int] = (-1, -1)
    reference: bytes = b""
    likeliest: bytes = b""
    told: bytes = b""
    coefficients: bytes = b""
    neutral: bool = False

    @property
    def tokens(self) -> list[int]:
        return array("I", self.ids).tolist()

    @property
    def learned(self) -> list[bool]:
        return list(map(bool, self.mask))


class Group(msgspec.Struct, frozen=True, array_like=True):
    """All rollouts of one prompt."""

    rollouts: tuple[Rollout, ...]


def rollout(
    tokens: list[int], learned: list[bool], logprobs: list[float], score: float, temperature: float = 1.0,
    versions: tuple[int, int] = (-1, -1), reference: list[float] | None = None,
) -> Rollout:  # fmt: skip
    """A rollout of lists: `logprobs` and `reference` have one value for each learned token."""
    return Rollout(
        array("I", tokens).tobytes(), bytes(learned), array("f", logprobs).tobytes(), score, temperature, versions,
        array("f", reference or ()).tobytes(),
    )  # fmt: skip


def write_group(group: Group) -> bytes:
    """The file; the same bytes for the same values and zlib. Raises RecordRefused for a group that is none."""
    check(group)
    return zlib.compress(msgspec.msgpack.encode(group))


def read_group(blob: bytes) -> Group:
    """The group in a file; raises RecordRefused for other bytes."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(blob, BYTES_MAX)
        if not unpacking.eof:
            raise RecordRefused(
                f"the group of rollouts is cut off, or larger than {BYTES_MAX >> 20} MiB", "leave it out"
            )
        group = msgspec.msgpack.decode(data, type=Group)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise RecordRefused(f"this is no group of rollouts: {error}", "leave it out") from error
    check(group)
    return group


def digest_of(group: Group) -> str:
    """32 hex digits that are equal for equal rollouts, in whichever order they came."""
    each = sorted(msgspec.msgpack.encode(one) for one in group.rollouts)
    return blake2b(b"".join(each), digest_size=16, person=b"apollod.group").hexdigest()


def check(group: Group) -> None:
    """Raise RecordRefused for a group from which nothing can be learned, with the place and what to do."""
    alone = all(one.likeliest or one.coefficients for one in group.rollouts)
    if len(group.rollouts) < (1 if alone and group.rollouts else 2):
        raise RecordRefused(
            f"the group has {len(group.rollouts)} rollouts: an advantage is relative to others",
            "sample at least two answers to each prompt",
        )
    for number, one in enumerate(group.rollouts, 1):
        _check_one(one, f"rollout {number} of {len(group.rollouts)}")


def _check_one(one: Rollout, where: str) -> None:
    if len(one.ids) % 4 or len(one.logprobs) % 4 or len(one.reference) % 4:
        raise RecordRefused(f"{where} has bytes that are no whole numbers", "leave the group out")
    tokens, targets = len(one.ids) // 4, sum(map(bool, one.mask))
    if len(one.mask) != tokens:
        raise RecordRefused(f"{where} has {tokens} tokens and a mask of {len(one.mask)}", "give one for each token")
    if not targets:
        raise RecordRefused(f"the mask of {where} selects no token", "mark the tokens that the model sampled")
    if one.mask[0]:
        raise RecordRefused(
            f"the mask of {where} selects the first token, which nothing comes before", "leave the prompt out of it"
        )
    if not math.isfinite(one.score):
        raise RecordRefused(f"the score of {where} is {one.score}", "give a number")
    if not (math.isfinite(one.temperature) and one.temperature > 0):
        raise RecordRefused(f"the temperature of {where} is {one.temperature}", "give that of the sampler, above 0")
    for name, data in (("log-probabilities", one.logprobs), ("log-probabilities of the reference", one.reference)):
        if name != "log-probabilities" and not data:
            continue
        if len(data) // 4 != targets:
            raise RecordRefused(
                f"{where} has {len(data) // 4} {name} for {targets} sampled tokens",
                "ask the engine for the log-probability of each sampled token: logprobs=0 of /generate, "
                "logprobs of /v1/completions",
            )
        if found := first_missing(data):
            raise RecordRefused(
                f"{name} of {where}: {found.value:g} for sampled token {found.place} is none",
                "the server returned fewer than it sampled: ask for them with each token",
            )
    if one.likeliest or one.told:
        _check_teacher(one, targets, where)
    if one.coefficients:
        values = array("f", one.coefficients) if len(one.coefficients) == 4 * targets else None
        if values is None or not all(map(math.isfinite, values)):
            raise RecordRefused(
                f"{where} has no finite coefficient for each of its {targets} learned tokens", "give one for each"
            )


def _check_teacher(one: Rollout, targets: int, where: str) -> None:
    if len(one.likeliest) != len(one.told) or len(one.likeliest) % (4 * targets):
        raise RecordRefused(
            f"{where} has {len(one.likeliest) // 4} likeliest tokens of a teacher with {len(one.told) // 4} "
            f"log-probabilities for {targets} sampled tokens",
            "give the same number for each sampled token",
        )
    if found := first_missing(one.told):
        raise RecordRefused(
            f"the teacher's log-probability {found.value:g} in place {found.place} of {where} is none",
            "ask the teacher again",
        )
    k = len(one.likeliest) // (4 * targets)
    ids = array("I", one.likeliest)
    if any(len(set(ids[row : row + k])) < k for row in range(0, len(ids), k)):
        raise RecordRefused(f"a teacher of {where} names a token twice in one place", "ask the teacher again")


class Missing(NamedTuple):
    """A value in place of a log-probability; `place` from 1."""

    place: int
    value: float


def first_missing(data: bytes) -> Missing | None:
    """The first value that is no log-probability: NaN, -9999, or above 0 by more than rounding."""
    values = enumerate(array("f", data), 1)
    return next((Missing(place, value) for place, value in values if not MISSING < value <= ROUNDING), None)


def advantages(scores: list[float], divide: bool = True) -> list[float] | None:
    """How much better each score is than the mean of its group, in standard deviations (of the population) if
    `divide`. None for a group without spread, from which nothing can be learned.

    A = (r - mean r) / std r        Shao et al., "DeepSeekMath" (arXiv:2402.03300), equation for outcome supervision;
    without the division: Liu et al., "Understanding R1-Zero-Like Training" (arXiv:2503.20783)
    """
    mean = math.fsum(scores) / len(scores)
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in scores) / len(scores))
    if spread < SPREAD_MIN * max(1.0, abs(mean)):
        return None
    return [(one - mean) / (spread if divide else 1.0) for one in scores]
