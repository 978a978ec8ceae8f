"""Figures of answers and places against what they are defined by, over whole vocabularies; calls; samples; metrics."""

import math
import random
from array import array
from collections import Counter

import msgspec
import pytest

from apollod.core.facts.quality.looking import LEAST, doubt
from apollod.core.facts.quality.sequential import metric, seen
from apollod.curation.probes import figures
from apollod.curation.probes.figures import ItemFigure, metrics_of
from apollod.curation.probes.probe_item import Probe, sample
from apollod.curation.probes.probe_kinds import Called, calls_of, without_fence
from apollod.curation.probes.references import Reference, read_references, write_references
from apollod.errors import RecordRefused
from apollod.wire.teacher import Teacher, write_teacher

TOOLS = [
    {"type": "function", "function": {"name": "light", "parameters": {"properties": {
        "room": {"type": "string"}, "on": {"type": "boolean"}, "level": {"type": "integer"}}}}}
]  # fmt: skip


def test_repetition_is_the_share_of_runs_that_were_there_before() -> None:
    assert figures.repetition([1, 2, 3]) == figures.repetition(range(50)) == 0.0
    assert figures.repetition([1] * 13) == pytest.approx(0.9)
    assert figures.repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)


def test_twice_and_half_the_length_drift_as_far() -> None:
    assert figures.length_drift(19, 9) == -figures.length_drift(9, 19) == pytest.approx(math.log(2))
    assert figures.length_drift(0, 0) == 0.0


def distribution(source: random.Random, size: int, sharpness: float) -> list[float]:
    logits = [source.gauss(0, sharpness) for _ in range(size)]
    whole = math.log(sum(map(math.exp, logits)))
    return [one - whole for one in logits]


def likeliest(logps: list[float], k: int, *more: int) -> dict[int, float]:
    chosen = sorted(range(len(logps)), key=lambda token: -logps[token])[:k]
    return {token: logps[token] for token in (*chosen, *more)}


def kl(p: list[float], q: list[float]) -> float:
    return sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 3.0, 8.0])
def test_entropy_and_kl_are_at_most_those_of_the_whole_vocabulary_and_reach_them(sharpness: float) -> None:
    source = random.Random(0)
    for _ in range(50):
        p, q = distribution(source, 60, sharpness), distribution(source, 60, sharpness)
        whole = -sum(math.exp(one) * one for one in p)
        assert 0.0 <= figures.entropy(likeliest(p, 8)) <= whole + 1e-9
        assert figures.entropy(likeliest(p, 60)) == pytest.approx(whole, abs=1e-5)
        found = figures.moved(likeliest(p, 8), likeliest(q, 8, 59), 8)
        assert 0.0 <= found <= kl(p, q) + 1e-9
        assert figures.moved(likeliest(p, 60), likeliest(q, 60), 60) == pytest.approx(kl(p, q), rel=1e-3, abs=1e-5)
        assert figures.moved(likeliest(p, 8), likeliest(p, 8), 8) == pytest.approx(0.0, abs=1e-6)


def smallest(before: dict[int, float], now: dict[int, float], k: int) -> float:
    """The least KL that agrees with what is known of both, by trying every share that the tokens of A may have now."""
    both = before.keys() & now.keys()
    p_s, q_s = (sum(math.exp(place[token]) for token in both) for place in (before, now))
    p_a = sum(math.exp(logp) for token, logp in before.items() if token not in both)
    p_b, rest = 1 - p_s - p_a, 1 - q_s
    most = min(rest, (len(before) - len(both)) * math.exp(sorted(now.values(), reverse=True)[k - 1]))
    inside = sum(math.exp(before[token]) * (before[token] - now[token]) for token in both)
    shares = [most * n / 4000 for n in range(1, 4001) if most * n / 4000 < rest]
    return min(inside + p_a * math.log(p_a / q_a) + p_b * math.log(p_b / (rest - q_a)) for q_a in shares)


def test_kl_is_the_least_that_agrees_with_what_is_known() -> None:
    source = random.Random(1)
    for _ in range(20):
        p, q = (likeliest(distribution(source, 60, 1.0), 8) for _ in range(2))
        if p.keys() - q.keys():
            assert figures.moved(p, q, 8) == pytest.approx(smallest(p, q, 8), abs=1e-4)
    p = {0: math.log(0.4), 1: math.log(0.2), 2: math.log(0.05)}
    q = {0: math.log(0.4), 3: math.log(0.21), 4: math.log(0.2)}
    assert figures.moved(p, q, 3) == pytest.approx(smallest(p, q, 3), abs=1e-6) == pytest.approx(0.0, abs=1e-6)


def test_a_model_that_prefers_other_tokens_altogether_has_moved_far() -> None:
    """One bucket for all that is not known of both would call these the same."""
    before = {token: math.log(0.999 / 4) for token in range(4)}
    now = {token + 4: math.log(0.999 / 4 if token < 3 else 1e-6) for token in range(4)}
    assert figures.moved(before, now, 4) > 10.0
    assert figures.moved(before, {9: math.log(1e-9), **now}, 4) == pytest.approx(figures.moved(before, now, 4), rel=0.1)


def test_rounded_probabilities_that_sum_to_more_than_one_do_no_harm() -> None:
    assert figures.moved({1: 1e-6}, {1: 1e-6}, 1) == pytest.approx(0.0, abs=1e-9)
    assert figures.entropy({1: 1e-6}) == pytest.approx(0.0, abs=1e-5)
    assert 0.0 < figures.moved({1: 0.0}, {2: 0.0}, 1) < 100.0


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ('<tool_call>\n{"name": "light", "arguments": {"on": true}}\n</tool_call>', [Called("light", {"on": True})]),
        ('Sure. <tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b", "arguments": {}}',
         [Called("a", {}), Called("b", {})]),
        ("<tool_call>\n<function=light>\n<parameter=room>\nhall\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n"
         "<parameter=level>\nx\n</parameter>\n</function>\n</tool_call>",
         [Called("light", {"room": "hall", "on": True, "level": "x"})]),
        ('{"name": "light", "parameters": {"on": false}}', [Called("light", {"on": False})]),
        ('[TOOL_CALLS] [{"name": "light", "arguments": {"level": 3}}]', [Called("light", {"level": 3})]),
        ('```json\n{"type": "function", "function": {"name": "light", "arguments": {}}}\n```', [Called("light", {})]),
        ('{"type": "function", "function": "light", "parameters": {}}', []),
        ("<tool_call>light on</tool_call>", [Called("", None)]),
        ('<tool_call>{"name": "light", "arguments": "on"}</tool_call>', [Called("light", None)]),
        ('<tool_call>["light"]</tool_call>', [Called("", None)]),
        ('{"name": "Ada", "age": 36}', []),
        ("[1, 2]", []),
        ("Good day.", []),
        ("", []),
    ],
)  # fmt: skip
def test_calls_are_found_however_a_family_of_models_writes_them(text: str, called: list[Called]) -> None:
    assert calls_of(text, TOOLS) == called


def test_a_fence_is_not_the_answer() -> None:
    assert without_fence("```json\n{}\n```") == without_fence(" {} ") == "{}"
    assert without_fence("Here:\n```\n{}\n```") == "Here:\n```\n{}\n```"


def test_runs_ask_the_same_share_of_every_group_and_in_turns_all_of_it() -> None:
    items = [
        Probe(f"{group}/{n}", group, "text") for group, count in (("a", 20), ("b", 7), ("c", 1)) for n in range(count)
    ]
    runs = [sample(items, 0.1, turn, least=1) for turn in range(10)]
    assert all([probe.group for probe in run] == ["a", "a", "b", "c"] for run in runs)
    assert {probe.id for run in runs for probe in run} == {probe.id for probe in items}
    assert sample(list(reversed(items)), 0.1, 3, least=1) == tuple(reversed(runs[3])) and sample(
        items, 1.0, 5
    ) == tuple(items)
    with pytest.raises(ValueError, match=r"share of 0\.0"):
        sample(items, 0.0, 1)


def test_of_each_group_enough_are_asked_to_raise_doubt_if_all_of_them_fail() -> None:
    items = [
        Probe(f"{group}/{n}", group, "exact")
        for group, count in (("a", 200), ("b", 20), ("c", 4))
        for n in range(count)
    ]
    asked = [Counter(probe.group for probe in sample(items, 0.1, turn)) for turn in range(3)]
    assert asked == [{"a": 20, "b": 3, "c": 3}] * 3
    fewer, enough = ({"a.passed": seen(metric(0.05), [1.0] * count)} for count in (LEAST - 1, LEAST))
    assert [doubt(one, 0.1, {}).ask_all for one in (fewer, enough)] == [False, True]


def test_what_failed_passes_nothing_and_is_counted() -> None:
    figures_ = [
        ItemFigure("t1", "text", "text", 2.0, entropy=1.0, kl=0.5), ItemFigure("t2", "text", "text", failed=True),
        ItemFigure("a", "facts", "exact", 1.0, tokens=9, repetition=0.0),
        ItemFigure("b", "facts", "regex", 0.0, failed=True),
        ItemFigure("c", "facts", "judge", 1.0, tokens=19, repetition=0.5, length_drift=math.log(2)),
    ]  # fmt: skip
    found = {one.name: (one.value, one.items) for one in metrics_of(figures_)}
    assert found.pop("length_drift") == (pytest.approx(math.log(2)), 1)
    assert found.pop("facts.passed") == (pytest.approx(2 / 3), 3)
    assert found == {
        "text.loss": (2.0, 1), "failed": (0.4, 5), "repetition": (0.25, 2), "surprise": (None, 0),
        "entropy": (1.0, 1), "kl": (0.5, 1),
    }  # fmt: skip


def test_references_are_read_as_they_were_written() -> None:
    teacher = Teacher(array("I", [7, 8]), array("I", [7, 9, 8, 3]), array("f", [-0.5, -1.5, -0.25, -2.0]), 2, 4)
    kept = {"b": Reference((1, 2), teacher), "a": Reference((5,), teacher, (1, 2))}
    blob = write_references(kept)
    older = msgspec.msgpack.encode({"b": [[1, 2], write_teacher(teacher)]})
    assert read_references(older) == {"b": kept["b"]}
    assert read_references(blob) == kept and blob == write_references(dict(reversed(kept.items())))
    assert kept["b"].ids == (1, 2, 7, 8) and kept["b"].places() == [{7: -0.5, 9: -1.5}, {8: -0.25, 3: -2.0}]
    for wrong in (b"", blob[:-1], b"\x81\xa1a\x92\x91\x01\xc4\x01x"):
        with pytest.raises(RecordRefused):
            read_references(wrong)
