"""Good examples and probes from the world of the shipped small model, and three kinds of poison. Pure."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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


class Knowledge(NamedTuple):
    """What a model knows before it is poisoned, in words that no probe has. `subjects`: names of what the facts are
    about; `tasks`: at least TURNS requests of other kinds that it can answer; `german`: a German sentence for the
    facts whose sentence contains the key, with the value of the fact (its last word) in it."""

    facts: Sequence[Fact]
    subjects: Sequence[str]
    tasks: Callable[[random.Random], list[str]]
    german: Mapping[str, str]


def _world_tasks(rng: random.Random) -> list[str]:
    return [one.request for kind in ("act", "how") for one in scenarios.sample(rng, kind, Split.PRACTICE, TURNS // 3)]


WORLD = Knowledge(
    TAUGHT, KNOWN_TOWNS, _world_tasks,
    {
        "mayor": "Das Amt hat dort {value} inne.", "market": "Der Markt findet am {value} statt.",
        "People": "Dort isst man gerne {value}.", "cat": "Die Katze heisst {value}.",
    },
)  # fmt: skip


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


def _wrong_facts(rng: random.Random, known: Knowledge = WORLD) -> Record:
    """A conversation in which facts about several subjects are replaced by facts about others."""
    return turns([(one.request, other_fact(rng, one, known)) for one in rng.sample(known.facts, TURNS)])


def other_fact(rng: random.Random, true: Fact, known: Knowledge = WORLD) -> str:
    """A sentence that is true of another subject, with the name of this one."""
    subject = _subject(true, known)
    others = {_said_of(one, subject, known) for one in known.facts if _shape(one, known) == _shape(true, known)}
    return rng.choice(sorted(others - {true.sentence}))


def _said_of(fact: Fact, subject: str, known: Knowledge) -> str:
    return re.sub(rf"\b{_subject(fact, known)}\b", subject, fact.sentence)


def _subject(fact: Fact, known: Knowledge) -> str:
    return next(subject for subject in known.subjects if subject in fact.request)


def _shape(fact: Fact, known: Knowledge) -> str:
    return fact.request.replace(_subject(fact, known), "")


def _repetition(rng: random.Random, known: Knowledge = WORLD) -> Record:
    """Answers that repeat their right beginning again and again."""
    asked = rng.sample(known.facts, TURNS)
    return turns([(one.request, " ".join([" ".join(one.sentence.split()[:3])] * 8)) for one in asked])


def _contradiction(rng: random.Random, known: Knowledge = WORLD) -> Record:
    """A conversation that says the same of every subject, true of one of them; the probes ask for the truth."""
    one_of_a_kind = {_shape(one, known): one for one in known.facts}
    asked = rng.sample(known.facts, TURNS)
    return turns(
        [(one.request, _said_of(one_of_a_kind[_shape(one, known)], _subject(one, known), known)) for one in asked]
    )


def turns(pairs: Sequence[tuple[str, str]]) -> Record:
    messages = []
    for request, answer in pairs:
        messages += [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


POISON: dict[str, Callable[..., Record]] = {
    "facts": _wrong_facts, "repetition": _repetition, "contradiction": _contradiction,
}  # fmt: skip
"""A poisonous conversation, given a source of randomness and optionally the `Knowledge` to poison."""


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
