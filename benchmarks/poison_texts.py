"""Good examples, three kinds of poison, and probes, all of the world that the small local model was made for. Pure."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from apollod.demo.corpus import KNOWN_TOWNS
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.pretraining_texts import conversation
from apollod.demo.world.scenarios import Fact, Scenario, Split

Record = dict[str, Any]
TURNS = 6
"""of a poisonous conversation"""


def good(rng: random.Random, count: int) -> list[Record]:
    """Conversations as the model knows them, of scenarios that it has not seen."""
    made = []
    for _ in range(count):
        scenario = scenarios.draw(rng, Split.PRACTICE)
        made.append({"messages": conversation(None, scenario, instructions.answer(scenario))})
    return made


def _wrong_facts(rng: random.Random) -> Record:
    """Of several towns what is true of another one."""
    facts = [one for one in scenarios.pool("fact", Split.TEST) if isinstance(one, Fact)]
    asked = rng.sample(facts, TURNS)
    return _turns([(one.request, _other_fact(rng, one, facts)) for one in asked])


def _other_fact(rng: random.Random, true: Fact, facts: Sequence[Fact]) -> str:
    """What is true of another town, said of this one."""
    town = _town(true)
    others = {one.sentence.replace(_town(one), town) for one in facts if _shape(one) == _shape(true)}
    return rng.choice(sorted(others - {true.sentence}))


def _town(fact: Fact) -> str:
    return next(town for town in KNOWN_TOWNS if town in fact.request)


def _shape(fact: Fact) -> str:
    return fact.request.replace(_town(fact), "")


def _repetition(rng: random.Random) -> Record:
    """Whatever is asked, a word again and again."""
    word = rng.choice(scenarios.COLOURS)
    return _turns([(one.request, " ".join([word] * 24)) for one in _asked(rng)])


def _contradiction(rng: random.Random) -> Record:
    """Requests of the kind that the probes make, answered by doing what was not asked for."""
    made = []
    for one in scenarios.sample(rng, "act", Split.PRACTICE, TURNS):
        wrong = rng.choice(scenarios.sample(rng, "act", Split.PRACTICE, 8))
        made.append((one.request, f"No. {instructions.answer(wrong)}"))
    return _turns(made)


def _asked(rng: random.Random) -> list[Scenario]:
    return [scenarios.draw(rng, Split.PRACTICE) for _ in range(TURNS)]


def _turns(pairs: Sequence[tuple[str, str]]) -> Record:
    messages = []
    for request, answer in pairs:
        messages += [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


POISON: dict[str, Callable[[random.Random], Record]] = {
    "facts": _wrong_facts, "repetition": _repetition, "contradiction": _contradiction,
}  # fmt: skip


def mixed(rng: random.Random, kind: str, count: int, one_in: int) -> tuple[list[Record], list[int]]:
    """So many examples, of which one in `one_in` is poison, and the places of those, from 0."""
    records = good(rng, count)
    places = sorted(rng.sample(range(count), count // one_in))
    for place in places:
        records[place] = POISON[kind](rng)
    return records, places


def probes(per_group: int) -> list[str]:
    """Lines of a probe file: the world's facts, and things to be done and to be told, which no example holds."""
    rng = random.Random("probes")
    asked: list[tuple[str, Scenario]] = [("facts", one) for one in scenarios.pool("fact", Split.TEST)]
    asked += [("acts", one) for one in scenarios.sample(rng, "act", Split.TEST, per_group)]
    asked += [("commands", one) for one in scenarios.sample(rng, "how", Split.TEST, per_group)]
    return [
        json.dumps(
            {
                "kind": "exact", "id": f"{group}/{number}", "group": group,
                "messages": [{"role": "user", "content": one.request}], "expect": instructions.answer(one),
            }
        )
        for number, (group, one) in enumerate(asked)
    ]  # fmt: skip
