"""Losses of groups of rollouts, against worked values in float64. These were computed in plain Python, and those of TRL
and Atropos checked with their own functions."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from apollod.errors import RecordRefused
from apollod.trainer.objectives.policy import (
    CISPO,
    DRO,
    GRPO,
    GSPO,
    IMPORTANCE_SAMPLING,
    NO_BOUND,
    PolicyObjective,
    divergence,
    policy_metrics,
    sequence_ratio,
)
from apollod.trainer.objectives.table import encoded
from apollod.wire.comparisons import GroupForm, GroupRecord, compared_json, with_file
from apollod.wire.rollouts import Group, Terms, advantages, rollout, write_group
from apollod.wire.teacher import GivenBlob, digest_of

SCORES = [1.0, 0.0, 0.5, 0.0]
LOGP = [[-0.5, -1.2, -0.3], [-2.0, -0.7], [-1.0, -1.0, -0.2, -3.0], [-0.1]]
MU = [[-0.6, -1.1, -0.9], [-1.5, -1.4], [-1.0, -0.5, -0.25, -2.5], [-0.1]]
REF = [[-0.55, -1.0, -0.4], [-2.1, -0.9], [-1.1, -0.8, -0.3, -2.8], [-0.2]]
OLD = [[-0.55, -1.15, -0.6], [-1.6, -1.3], [-1.0, -0.6, -0.2, -2.6], [-0.1]]
EXACT = {"rel": 1e-12, "abs": 1e-12}


def flat(rows: list[list[float]]) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)


def columns(objective: PolicyObjective = GRPO, **others: Any) -> dict[str, Tensor]:
    """The columns of the worked group in float64, as `encoded` makes them in float32 (a test below compares)."""
    terms = Terms(**others)
    better = advantages(SCORES, terms.divide)
    assert better is not None
    found: dict[str, list[float]] = {}
    for number, (row, advantage) in enumerate(zip(LOGP, better, strict=True)):
        shares = {"sequence": 4 * len(row), "token": 10, "constant": 4 * terms.length, "sum": 1}
        least, most = objective.bounds(terms, advantage)
        each = {
            "advantage": advantage, "share": 1 / shares[terms.mean], "least": least, "most": most, "beta": terms.beta,
            "answer": number, "version": -1, "kl": terms.kl, "truncate": terms.truncate,
        }  # fmt: skip
        for name, value in each.items():
            found.setdefault(name, []).extend([value] * len(row))
    made = {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}
    for name in ("answer", "version"):
        made[name] = made[name].long()
    if terms.kl:
        made["reference"] = flat(REF)
    else:
        del made["kl"]
    if terms.truncate:
        made["old"] = flat(OLD)
    else:
        del made["truncate"]
    return {**made, "mu": flat(MU)}


def loss(objective: PolicyObjective, given: Mapping[str, Tensor]) -> float:
    found = objective.loss(flat(LOGP), given)
    return found.item()


def coefficients(objective: PolicyObjective, given: Mapping[str, Tensor]) -> list[float]:
    """dL/dlogp."""
    logps = flat(LOGP).requires_grad_()
    (found,) = torch.autograd.grad(objective.loss(logps, given), logps)
    return found.tolist()


@pytest.mark.parametrize(
    ("terms", "value"),
    [
        ({}, 0.0794883451093549),
        ({"mean": "token"}, -0.23738337833216994),
        ({"mean": "constant", "length": 8, "divide": False}, -0.030754359273233986),
        ({"mean": "token", "high": 1.28}, -0.24944383211528054),
        ({"mean": "token", "dual": 1.5}, -0.2838540592151369),
        ({"kl": 0.04}, 0.07987732636192099),
        ({"truncate": 2.0, "mean": "token"}, -0.3075614415528909),
        ({"truncate": 2.0}, 0.018137365954607104),
        ({"surrogate": "atropos"}, -0.03439498260608351),
    ],
    ids=str,
)
def test_grpo_and_its_variants_have_their_worked_values(terms: dict[str, Any], value: float) -> None:
    assert loss(GRPO, columns(**terms)) == pytest.approx(value, **EXACT)


def test_the_gradient_is_pessimistic_where_the_advantage_is_negative() -> None:
    """A token of a bad answer that became likelier is pushed down, one that is unlikely already is left alone: Atropos
    does it the other way round."""
    expected = [
        -0.1388423206238458, -0.11367447772345592, 0, 0, 0.22768848242870074, -0.018844459036110227,
        -0.011429742171099632, -0.019810635111504674, -0.011429742171099632, 0.22613350843332272,
    ]  # fmt: skip
    assert coefficients(GRPO, columns()) == pytest.approx(expected, **EXACT)
    atropos = coefficients(GRPO, columns(surrogate="atropos"))[3:5]
    assert atropos == pytest.approx([0.06857845302659779, 0], **EXACT)


def test_figures_of_a_step_are_the_worked_ones() -> None:
    found = policy_metrics(flat(LOGP), columns())
    assert found["ratio"] == pytest.approx(1.071674291948652, **EXACT)
    assert found["clipped"] == pytest.approx(0.2, **EXACT)  # |rho - 1| > 0.2 holds for half of the tokens
    assert found["apart"] == pytest.approx(0.305, **EXACT)
    assert found["entropy"] == pytest.approx(1.0, **EXACT)
    assert divergence(flat(LOGP), flat(REF)).mean().item() == pytest.approx(0.010835554223900354, **EXACT)


def test_gspo_has_one_ratio_for_an_answer() -> None:
    each = sequence_ratio(flat(LOGP), columns()).tolist()
    expected = [1.2214027581601699, 1.1051709180756475, 0.7885968909810767, 1.0]
    assert [each[0], each[3], each[5], each[9]] == pytest.approx(expected, **EXACT)
    better = advantages(SCORES) or []
    bounded = [1.2, 1.1051709180756475, 0.7885968909810767, 1.0]
    by_hand = -sum(a * r for a, r in zip(better, bounded, strict=True)) / 4
    assert loss(GSPO, columns(GSPO)) == pytest.approx(by_hand, **EXACT)
    assert GSPO.metrics(flat(LOGP), columns(GSPO))["clipped"] == pytest.approx(0.3), "the first answer's three tokens"


@pytest.mark.parametrize("objective", [IMPORTANCE_SAMPLING, CISPO, DRO], ids=lambda one: one.name)
def test_the_others_are_their_formulas_token_by_token(objective: PolicyObjective) -> None:
    terms = {"mean": "sum", "low": 0.7, "high": 1.5, "beta": 0.3}
    better, total, slopes = advantages(SCORES) or [], 0.0, []
    for a, row, mus in zip(better, LOGP, MU, strict=True):
        for logp, mu in zip(row, mus, strict=True):
            rho = math.exp(logp - mu)
            weight = min(max(rho, 0.7), 1.5)
            value, slope = {
                "importance_sampling": (-a * rho, -a * rho),
                "cispo": (-a * weight * logp, -a * weight),
                "dro": (-(a * logp - 0.15 * (logp - mu) ** 2), -(a - 0.3 * (logp - mu))),
            }[objective.name]
            total += value
            slopes.append(slope)
    given = columns(objective, **terms)
    assert loss(objective, given) == pytest.approx(total, **EXACT)
    assert coefficients(objective, given) == pytest.approx(slopes, **EXACT)


# --- from rollouts to columns ----------------------------------------------------------------------------------------


def group(**changes: Any) -> Group:
    """The worked group, after a prompt of two tokens."""
    each = [
        rollout([7, 8, *range(9, 9 + len(mu))], [False, False] + [True] * len(mu), mu, score, reference=ref, **changes)
        for mu, ref, score in zip(MU, REF, SCORES, strict=True)
    ]
    return Group(tuple(each))


@pytest.mark.parametrize("objective", [GRPO, GSPO, CISPO, DRO], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "terms",
    [{}, {"mean": "token", "kl": 0.04}, {"mean": "constant", "length": 8, "dual": 3.0}, {"mean": "sum"}],
    ids=str,
)
def test_columns_of_an_example_are_those_of_its_rollouts(objective: PolicyObjective, terms: dict[str, Any]) -> None:
    tokens = objective.encoded(Terms(**terms), group())
    tokens.check()
    assert tokens.starts == (0, 5, 9, 15) and tokens.targets == 10 and "temperature" not in tokens.columns
    found, expected = tokens.tensors(torch.device("cpu")), columns(objective, **terms)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        torch.testing.assert_close(
            found[name], column if name in ("answer", "version") else column.float(), rtol=0, atol=0
        )


def test_one_rollout_at_another_temperature_gives_all_of_them_a_column() -> None:
    first, *others = group().rollouts
    mixed = Group((first, *(msgspec.structs.replace(one, temperature=0.7) for one in others)))
    tokens = GRPO.encoded(Terms(), mixed)
    tokens.check()
    assert tokens.columns["temperature"].tolist() == pytest.approx([1.0] * 3 + [0.7] * 7)


def test_a_neutral_rollout_has_no_advantage_and_counts_for_the_others() -> None:
    first, *others = group().rollouts
    tokens = GRPO.encoded(Terms(), Group((msgspec.structs.replace(first, neutral=True), *others)))
    expected = GRPO.encoded(Terms(), group()).columns["advantage"].tolist()
    assert expected[:3] != [0.0] * 3 and tokens.columns["advantage"].tolist() == [0.0] * 3 + expected[3:]


def test_a_group_without_spread_teaches_nothing() -> None:
    """Equal but for the rounding of float32, too."""
    each = enumerate(group().rollouts)
    alike = Group(tuple(msgspec.structs.replace(one, score=0.3 + 3e-8 * number) for number, one in each))
    with pytest.raises(RecordRefused, match=r"all 4 rollouts have the score 0\.3"):
        GRPO.encoded(Terms(), alike)


def test_a_divergence_without_a_reference_is_refused() -> None:
    without = Group(tuple(msgspec.structs.replace(one, reference=b"") for one in group().rollouts))
    with pytest.raises(RecordRefused, match="kl is above 0"):
        GRPO.encoded(Terms(kl=0.1), without)


def test_a_group_takes_the_room_of_its_longest_answer_for_each_of_them() -> None:
    """In whole chunks of 64 tokens, as a gated delta net pads them."""
    assert GRPO.encoded(Terms(), group()).room == 4 * 64
    blob = write_group(group())
    form = GroupForm("sums", [], [], "grpo", digest_of(blob), SCORES)
    record = with_file(compared_json(GroupRecord(form)), GivenBlob(digest_of(blob), blob))
    assert encoded(None, record, GRPO, 256).targets == 10  # type: ignore[arg-type]
    with pytest.raises(RecordRefused, match=r"its 4 sequences take 256 tokens .* max_tokens is 255"):
        encoded(None, record, GRPO, 255)  # type: ignore[arg-type]


def test_other_scores_in_the_record_than_in_its_file_are_refused() -> None:
    blob = write_group(group())
    form = GroupForm("sums", [], [], "grpo", digest_of(blob), SCORES[::-1])
    with pytest.raises(RecordRefused, match="are not those of the record"):
        GroupRecord(form, GivenBlob(digest_of(blob), blob)).read()


def test_an_unbounded_ratio_is_no_infinity() -> None:
    assert NO_BOUND < math.inf and torch.tensor(NO_BOUND, dtype=torch.float32).isfinite()
    far = {**columns(), "mu": flat(MU) - 1000.0}
    assert math.isfinite(loss(IMPORTANCE_SAMPLING, far))
