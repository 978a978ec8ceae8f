"""All objectives that a step can name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from transformers import PreTrainedTokenizerBase

from apollod.errors import ApolloError, RecordRefused
from apollod.trainer.objectives.compared_answers import DPO, KTO
from apollod.trainer.objectives.context import CONTEXT, DISTILL, ContextDistillation
from apollod.trainer.objectives.objective import SFT, Objective, SupervisedFineTuning
from apollod.trainer.objectives.policy import CISPO, COEFFICIENTS, DRO, GRPO, GSPO, IMPORTANCE_SAMPLING
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.comparisons import Compared, GroupRecord, LearnedRecord, PairRecord, RatedRecord, decode_learned

OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (SFT, CONTEXT, DISTILL, GRPO, GSPO, CISPO, DRO, IMPORTANCE_SAMPLING, COEFFICIENTS, DPO, KTO)
}

_FORMER: dict[str, tuple[Objective, ...]] = {
    "sft": tuple(SupervisedFineTuning(rules) for rules in (3, 2, 1)),
    "context": tuple(ContextDistillation(rules) for rules in (3, 2)),
}
"""objectives with older rules, which reproduce ids and masks of older journals, newest first"""


class ObjectiveUnknown(ApolloError, ValueError):
    """A step names an unknown objective."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no objective {name!r}, known are {', '.join(sorted(OBJECTIVES))}",
            "supervisor and trainer must be of one version; a journal of a newer one is replayed by that version",
        )


def objective_named(name: str) -> Objective:
    """The objective; raises ObjectiveUnknown."""
    if name not in OBJECTIVES:
        raise ObjectiveUnknown(name)
    return OBJECTIVES[name]


def objective_of(record: LearnedRecord) -> Objective:
    """The objective for a record: the one for its kind, or that which a group of rollouts names."""
    match record:
        case GroupRecord():
            return objective_named(record.group.objective)
        case PairRecord():
            return DPO
        case RatedRecord():
            return KTO
    return SFT if record.teacher is None else CONTEXT


def encoded(
    tokenizer: PreTrainedTokenizerBase, record: bytes, objective: Objective, max_tokens: int, digest: str = ""
) -> Tokens:
    """A canonical record encoded for the objective; raises RecordRefused.

    `digest`: that of `example.encoded`, if the record was encoded before, possibly by former rules; if no rules
    reproduce it, the result of today's is returned.
    """
    typed = decode_learned(record)
    former = _FORMER.get(objective.name, ()) if digest else ()
    try:
        tokens = objective.encode(tokenizer, typed, max_tokens)
        tokens.check()
        _check_room(tokens, max_tokens)
    except RecordRefused:
        if found := _by_former(tokenizer, typed, former, max_tokens, digest):
            return found
        raise
    if not digest or tokens.digest() == digest:
        return tokens
    return _by_former(tokenizer, typed, former, max_tokens, digest) or tokens


def referred(
    tokenizer: PreTrainedTokenizerBase, record: Compared, max_tokens: int, score: Callable[[Tokens], bytes]
) -> bytes:
    """The file of the reference of a record that has none yet. `score`: the log-probabilities of the learned tokens
    under the weights of the reference, float32. Raises RecordRefused."""
    match record:
        case PairRecord():
            tokens = DPO.without_reference(tokenizer, record, max_tokens)
        case RatedRecord():
            tokens = KTO.without_reference(tokenizer, record, max_tokens)
        case GroupRecord():
            tokens = objective_of(record).encode(tokenizer, record.bare(), max_tokens)
    tokens.check()
    _check_room(tokens, max_tokens)
    return score(tokens)


def _check_room(tokens: Tokens, max_tokens: int) -> None:
    """Raise RecordRefused for several sequences that together need more memory than is planned for a step."""
    if len(tokens.starts) > 1 and tokens.room > max_tokens:
        raise RecordRefused(
            f"its {len(tokens.starts)} sequences take {tokens.room} tokens as one batch, [trainer] max_tokens is "
            f"{max_tokens}",
            "raise it, or sample fewer or shorter ones",
        )


def _by_former(
    tokenizer: PreTrainedTokenizerBase,
    record: LearnedRecord,
    former: tuple[Objective, ...],
    max_tokens: int,
    digest: str,
) -> Tokens | None:
    for objective in former:
        with suppress(RecordRefused):
            if (tokens := objective.encode(tokenizer, record, max_tokens)).digest() == digest:
                return tokens
    return None
