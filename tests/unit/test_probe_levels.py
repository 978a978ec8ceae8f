"""The probes of levels 2 and 3 that ship: what the generator makes, each right answer found anew."""

import contextlib
import io
import json
import re
from collections import Counter
from typing import Any

import pytest

from apollod.adapters.llm.probing import check_schemas
from apollod.curation.probes.probe_item import Probe
from apollod.curation.probes.probe_kinds import without_fence
from apollod.curation.probes.probe_lines import probe_set
from apollod.supervisor.quality.prober import is_shipped, level_of, shipped
from benchmarks import probe_levels

PROBES = {probe.id: probe for probe in shipped(3)}
HARDER = [probe for probe in PROBES.values() if level_of(probe) > 1]
SUBJECTS = ("arithmetic", "code", "parts", "context")


def test_the_files_are_what_the_generator_writes() -> None:
    items, texts = probe_levels.made()
    assert probe_levels.ITEMS.read_text() == items and probe_levels.DOCUMENTS.read_text() == texts


def test_each_level_has_large_groups_and_those_below_are_as_they_were() -> None:
    assert len(shipped(0)) == 0 and len(shipped(1)) == 220 and {level_of(one) for one in shipped(1)} == {1}
    assert shipped(2)[:220] == shipped(1) == shipped(3)[:220], "ids, words and places stay"
    counts = Counter(probe.group for probe in shipped(3)[220:])
    assert counts == {f"{subject}-{level}": 180 for subject in SUBJECTS for level in (2, 3)}
    assert {level_of(one) for one in shipped(2)} == {1, 2} and all(map(is_shipped, PROBES.values()))
    check_schemas(probe_set(PROBES.values()))  # of which no two ask nearly the same


def of(subject: str) -> list[Probe]:
    return [probe for probe in HARDER if probe.group.startswith(subject)]


def asked(probe: Probe) -> str:
    return str(probe.messages[-1]["content"])


def passes(probe: Probe, answer: str) -> bool:
    if probe.kind == "regex":
        return re.search(str(probe.expect), answer.strip()) is not None
    assert isinstance(probe.expect, dict)
    try:
        said = json.loads(without_fence(answer))
    except ValueError:
        return False
    return bool(said == {key: one["const"] for key, one in probe.expect["properties"].items()})


def test_arithmetic_is_added_up_anew() -> None:
    lengths: dict[str, set[int]] = {}
    for probe in of("arithmetic"):
        first, *steps = re.findall(r"(Start with|Add|Subtract|Multiply by|Divide by) (\d+)\.", asked(probe))
        value, said = int(first[1]), list[str]()
        for way, number in steps:
            n = int(number)
            assert way != "Divide by" or value % n == 0
            value = {"Add": value + n, "Subtract": value - n, "Multiply by": value * n, "Divide by": value // n}[way]
            assert 10 <= value <= 9999
            said.append(str(value))
        assert passes(probe, "\n".join(said)) and passes(probe, f"**{value:,}**."), probe.id
        assert not passes(probe, "\n".join([*said, "7"])) and not passes(probe, str(value + 1)), probe.id
        lengths.setdefault(probe.group, set()).add(len(steps))
    assert lengths == {"arithmetic-2": {2, 3}, "arithmetic-3": {4, 5, 6}}


def test_programs_print_what_is_expected() -> None:
    for probe in of("code"):
        (source,) = re.findall(r"```python\n(.*)\n```", asked(probe), re.DOTALL)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(source, {})
        right = printed.getvalue().strip()
        assert "\n" not in right and passes(probe, right) and passes(probe, f"```\n{right}\n```"), probe.id
        assert not passes(probe, f"{right}0") and not passes(probe, f"{right}\nor so"), probe.id


def test_what_is_asked_of_a_long_text_stands_in_it_once() -> None:
    words = {2: (300, 700), 3: (900, 2400)}
    for probe in of("context"):
        text = str(probe.messages[0]["content"])
        name = re.search(r"[A-Z]\w+(?= keep|\?| from| and)", asked(probe).removeprefix("Wh"))
        assert name is not None, asked(probe)
        found = re.findall(rf"[^.]*\b{name[0]}\b[^.]*\.", text)
        assert len(found) == 1, (probe.id, name[0], found)
        (value,) = [one for one in re.findall(r"\w+", found[0]) if passes(probe, one)]
        assert passes(probe, f"It is {value}.") and not passes(probe, "none") and value.islower()
        low, high = words[level_of(probe)]
        assert low <= len(text.split()) <= high, "500 to 3,000 tokens"
    assert len({probe.messages[0]["content"] for probe in of("context")}) == 10, "one text for many questions"


RIGHT = {
    "Count from (\\d+) to (\\d+), one number a line, and leave out (\\d+)": lambda a, b, c: "\n".join(
        str(n) for n in range(int(a), int(b) + 1) if n != int(c)
    ),
    "alphabetical order and in capital letters, with commas between them: (.*?)\\.": lambda given: ", ".join(
        sorted(given.split(", "))
    ).upper(),
    'begins with "(\\w)", and join the others with " / ": (.*?)\\.': lambda letter, given: " / ".join(
        one for one in given.split(", ") if one[0] != letter
    ),
    'under "last" the last of them: (.*?)\\.': lambda given: json.dumps(
        {"count": len(given.split(", ")), "last": given.split(", ")[-1]}
    ),
    'Write the word "(\\w+)" t.* on one line, with a space between, and below it the word "(\\w+)"': lambda a, b: (
        f"{a} {a}\n{b.upper()}"
    ),
    'Take these words: (.*?)\\. Leave out each that begins with "(\\w)"': lambda given, letter: "\n".join(
        f"{n}. {one.upper()}"
        for n, one in enumerate(sorted(one for one in given.split(", ") if one[0] != letter), 1)
    ),
    'Of these words: (.*?)\\. .*null.*"sum": (\\d+) times (\\d+), plus (\\d+)': lambda given, a, b, c: json.dumps(
        {
            "count": 7, "sorted": sorted(given.split(", "))[:3], "longest": longest(given.split(", ")),
            "sum": int(a) * int(b) + int(c),
        }
    ),
    'from (\\d+) to (\\d+) in steps of (\\d+), .*leave out (\\d+), .* the word "(\\w+)"': lambda a, b, c, d, e: (
        ", ".join(str(n) for n in range(int(a), int(b) - 1, -int(c)) if n != int(d)) + f"\n{e.upper()}"
    ),
    "more than four letters: (.*?)\\.": lambda given: (
        f"{sum(len(one) > 4 for one in given.split(', '))}: "
        + " / ".join(one.upper() for one in given.split(", ")[::-1] if len(one) > 4)
    ),
    'word "(\\w+)" in.*Then on a new line (\\d+) plus (\\d+).*words "(\\w+)" and "(\\w+)".*"(\\w)': lambda *of: (
        f"{of[0].upper()}\n{int(of[1]) + int(of[2])}\n{of[3]}-{of[4]}\n{of[5] * 3}"
    ),
}  # fmt: skip


def longest(words: list[str]) -> str | None:
    size = max(map(len, words))
    found = [one for one in words if len(one) == size]
    return found[0] if len(found) == 1 else None


def test_instructions_of_parts_are_followed_anew_and_each_part_counts() -> None:
    seen = Counter[str]()
    for probe in of("parts"):
        follow: Any
        pattern, follow = next((p, f) for p, f in RIGHT.items() if re.search(p, asked(probe)))
        found = re.search(pattern, asked(probe))
        assert found is not None
        right = follow(*found.groups())
        seen[f"{probe.group} {pattern}"] += 1
        assert passes(probe, right) and passes(probe, f"```\n{right}\n```"), (probe.id, right)
        for wrong in ("", "Here it is:\n" + right, right[1:], right[:-2], right.swapcase()):
            assert not passes(probe, wrong) or wrong == right, (probe.id, wrong)
    assert len(seen) == 10 and set(seen.values()) == {36}


@pytest.mark.parametrize("probe", HARDER[::97], ids=lambda probe: probe.id)
def test_each_is_asked_in_plain_words_of_a_user(probe: Probe) -> None:
    assert probe.messages[-1]["role"] == "user" and probe.place.startswith("apollod/data/levels.jsonl:")
