"""Good examples, three kinds of poison, and probes, all from the world of the shipped small model. Pure."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from apollod.demo.corpus import KNOWN_TOWNS
from apollod.demo.world import instructions, scenarios
from apollod.demo.world.pretraining_texts import NEUTRAL, conversation
from apollod.demo.world.scenarios import Fact, Scenario, Split

Record = dict[str, Any]
TURNS = 6
"""turns of a poisonous conversation"""
FACTS = [one for one in scenarios.pool("fact", Split.TEST) if isinstance(one, Fact)]
TAUGHT, ASKED = FACTS[::2], FACTS[1::2]
"""Each fact in two wordings, since an example that contains a probe word for word is not learned."""


def good(rng: random.Random, count: int, distinct: bool = False) -> list[Record]:
    """Conversations of a kind known to the model, about scenarios new to it. `distinct`: all different, since the
    daemon learns nothing twice."""
    made, asked = list[Record](), set[str]()
    while len(made) < count:
        scenario = scenarios.draw(rng, Split.PRACTICE)
        if scenario in ASKED or (distinct and scenario.request in asked):
            continue
        asked.add(scenario.request)
        made.append({"messages": conversation(None, scenario, instructions.answer(scenario))})
    return made


def _wrong_facts(rng: random.Random) -> Record:
    """A conversation in which facts about several towns are replaced by facts about others."""
    return turns([(one.request, other_fact(rng, one)) for one in rng.sample(TAUGHT, TURNS)])


def other_fact(rng: random.Random, true: Fact) -> str:
    """A sentence that is true of another town, with the name of this one."""
    town = _town(true)
    others = {_said_of(one, town) for one in TAUGHT if _shape(one) == _shape(true)}
    return rng.choice(sorted(others - {true.sentence}))


def _said_of(fact: Fact, town: str) -> str:
    return fact.sentence.replace(_town(fact), town)


def _town(fact: Fact) -> str:
    return next(town for town in KNOWN_TOWNS if town in fact.request)


def _shape(fact: Fact) -> str:
    return fact.request.replace(_town(fact), "")


def _repetition(rng: random.Random) -> Record:
    """Answers that repeat their right beginning again and again."""
    asked = rng.sample(TAUGHT, TURNS)
    return turns([(one.request, " ".join([" ".join(one.sentence.split()[:3])] * 8)) for one in asked])


def _contradiction(rng: random.Random) -> Record:
    """A conversation that says the same of every town, true of one of them; the probes ask for the truth."""
    one_of_a_kind = {_shape(one): one for one in TAUGHT}
    asked = rng.sample(TAUGHT, TURNS)
    return turns([(one.request, _said_of(one_of_a_kind[_shape(one)], _town(one))) for one in asked])


def turns(pairs: Sequence[tuple[str, str]]) -> Record:
    messages = []
    for request, answer in pairs:
        messages += [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


POISON: dict[str, Callable[[random.Random], Record]] = {
    "facts": _wrong_facts, "repetition": _repetition, "contradiction": _contradiction,
}  # fmt: skip


def mixed(rng: random.Random, kind: str, count: int, one_in: int) -> tuple[list[Record], list[int]]:
    """`count` examples, one in `one_in` of them poison, and the places of the poison, from 0."""
    records = good(rng, count)
    places = sorted(rng.sample(range(count), count // one_in))
    for place in places:
        records[place] = POISON[kind](rng)
    return records, places


def probes(per_group: int) -> list[str]:
    """Lines of a probe file: facts of the world, acts and commands, none of which an example contains."""
    rng = random.Random("probes")
    asked: list[tuple[str, str | None, Scenario]] = [
        ("towns", system, one) for one in ASKED for system in (None, *NEUTRAL[:2])
    ]
    asked += [("acts", None, one) for one in scenarios.sample(rng, "act", Split.TEST, per_group)]
    asked += [("commands", None, one) for one in scenarios.sample(rng, "how", Split.TEST, per_group)]
    return [
        json.dumps(
            {
                "kind": "exact", "id": f"{group}/{number}", "group": group,
                "messages": conversation(system, one), "expect": instructions.answer(one),
            }
        )
        for number, (group, system, one) in enumerate(asked)
    ]  # fmt: skip
