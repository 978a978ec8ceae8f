"""Contrast cases of patterns as probes: a held-out scenario after a text that rules the behaviour out."""

from collections import Counter
from collections.abc import Iterable

from apollod.core.dreams.contrast_cases import ContrastCase
from apollod.core.dreams.scenario import Turn
from apollod.core.settings import Check
from apollod.curation.probes.probe_lines import OF_PATTERNS, Probe


def contrast_probes(cases: Iterable[ContrastCase]) -> tuple[Probe, ...]:
    """The cases as probes, in order, in a group for each pattern. An id consists of the pattern, the scenario's dream,
    and a number."""
    of_scenario = Counter[tuple[str, str]]()
    found = []
    for case in cases:
        of_scenario[case.pattern, case.dream] += 1
        group = OF_PATTERNS + case.pattern
        turns = [{"role": turn.role, "content": turn.content} for turn in case.scenario]
        found.append(
            Probe(
                id=f"{group}/{case.dream}.{of_scenario[case.pattern, case.dream]}",
                group=group,
                kind="contrast",
                messages=({"role": "system", "content": case.text}, *turns),
                expect=case.check,
                place=f"held-out scenario {case.dream} of the pattern {case.pattern}",
            )
        )
    return tuple(found)


def case_of(probe: Probe) -> tuple[Check, str, tuple[Turn, ...]]:
    """The check, the text and the scenario of a contrast probe."""
    assert isinstance(probe.expect, Check)
    text, *turns = probe.messages
    return probe.expect, text["content"], tuple(Turn(one["role"], one["content"]) for one in turns)
