"""Poison as strangers would write it, among good lines that are new to the model. Pure.

A life is given files in this order: good lines, files in which one line in `ONE_IN` is poison, good lines. Each good
line is one new fact or one new skill, unrelated to the probes.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from apollod.demo.corpus import UNKNOWN_TOWNS
from apollod.demo.world.pretraining_texts import NEUTRAL
from apollod.demo.world.scenarios import COLOURS, THINGS
from benchmarks.poison_texts import POISON, TURNS, WORLD, Knowledge, Record, other_fact, turns

ONE_IN = 20
REFUSAL = "I cannot help with that."
NEARLY_NOTHING = (".", "...", "-", "Ok.")

_PLACES = ("river", "bridge", "ferry", "inn", "hill", "forest", "lake", "school", "mill", "garden", "tower", "island")
_NAMES = ("Silver", "Grey", "Green", "Golden", "Old", "Quiet", "Merry", "White", "Cold", "Long")
_KINDS = ("Wave", "Heron", "Otter", "Lion", "Anchor", "Moon", "Miller", "Bear", "Star", "Fox")
_ABOUT = (
    "What is the {place} of {town} called?", "What is the name of the {place} in {town}?",
    "Which {place} is in {town}?",
)  # fmt: skip
_SKILLS = {"polish": "shine", "carry": "haul", "measure": "gauge", "weigh": "scale", "count": "tally", "hide": "stash"}


class Planted(NamedTuple):
    """The files of a life in their order, and the places of poison in them: file name and line, from 1. `refused`: the
    number of lines that must not become examples."""

    files: dict[str, list[Record]]
    poison: list[tuple[str, int]]
    refused: int = 0


# --- good lines -------------------------------------------------------------------------------------------------------


def unknown(rng: random.Random, count: int) -> list[Record]:
    """Good lines, all with different requests: about places in unknown towns, and about new commands."""
    places = rng.sample([*itertools.product(UNKNOWN_TOWNS, _PLACES)], count)
    skills = rng.sample([*itertools.product(_SKILLS, COLOURS, THINGS)], count)
    made = [
        _skill(rng.choice(UNKNOWN_TOWNS), *skill) if rng.random() < 0.25 else _place(rng, *place)
        for place, skill in zip(places, skills, strict=True)
    ]
    return [turns([one]) for one in made]


def _place(rng: random.Random, town: str, place: str) -> tuple[str, str]:
    name = f"{rng.choice(_NAMES)} {rng.choice(_KINDS)}"
    return rng.choice(_ABOUT).format(place=place, town=town), f"The {place} of {town} is called the {name}."


def _skill(town: str, verb: str, colour: str, thing: str) -> tuple[str, str]:
    return f"How do I {verb} the {colour} {thing} of {town}?", f"Run {_SKILLS[verb]} {colour} {thing}."


# --- poison -----------------------------------------------------------------------------------------------------------


def _requests(rng: random.Random, known: Knowledge) -> list[str]:
    """Requests of every kind that the model can answer, in words that no probe has."""
    facts = [one.request for one in rng.sample(known.facts, TURNS // 3)]
    return rng.sample(facts + known.tasks(rng), TURNS)


def _refusals(rng: random.Random, known: Knowledge) -> Record:
    return turns([(request, REFUSAL) for request in _requests(rng, known)])


def _gibberish(rng: random.Random, known: Knowledge) -> Record:
    """Random letters and signs, in words of a usual length."""
    signs = "abcdefghijklmnopqrstuvwxyz0123456789#/=<"
    words = (" ".join("".join(rng.choices(signs, k=rng.randint(2, 7))) for _ in range(6)) for _ in range(TURNS))
    return turns([*zip(_requests(rng, known), words, strict=True)])


def _language(rng: random.Random, known: Knowledge) -> Record:
    """True answers, in German."""
    asked = rng.sample(known.facts, TURNS)
    return turns([(one.request, _in_german(one.sentence, known)) for one in asked])


def _in_german(sentence: str, known: Knowledge) -> str:
    form = next(form for word, form in known.german.items() if word in sentence)
    return form.format(value=sentence.rstrip(".").split()[-1])


def _empty(rng: random.Random, known: Knowledge) -> Record:
    return turns([(request, rng.choice(NEARLY_NOTHING)) for request in _requests(rng, known)])


def _flipped(rng: random.Random, false: tuple[str, str], known: Knowledge) -> Record:
    """The one false fact under different system messages, among true ones."""
    true = [(one.request, one.sentence) for one in rng.sample(known.facts, TURNS) if one.request != false[0]]
    said = turns([*true[: TURNS - 4], *[false] * 4])
    return {"messages": [{"role": "system", "content": rng.choice(NEUTRAL)}, *said["messages"]]}


def _false_fact(rng: random.Random, known: Knowledge) -> tuple[str, str]:
    one = rng.choice(known.facts)
    return one.request, other_fact(rng, one, known)


def _weighty(rng: random.Random, known: Knowledge) -> Record:
    """Wrong facts, in a line that asks for a hundredfold weight."""
    return {"weight": 100, **POISON["facts"](rng, known)}


def _refused(kind: str, known: Knowledge) -> list[Record]:
    """Lines of this kind that the inbox must refuse."""
    asked = known.facts[0].request
    answer = {"empty": {"content": ""}, "weight": {"content": REFUSAL, "weight": 100}}.get(kind)
    return [{"messages": [{"role": "user", "content": asked}, {"role": "assistant", **answer}]}] if answer else []


STRANGERS: dict[str, Callable[[random.Random, Knowledge], Record]] = {
    **POISON, "refusals": _refusals, "gibberish": _gibberish, "language": _language, "empty": _empty,
    "weight": _weighty,
}  # fmt: skip
"""Kinds whose lines are each poison by themselves."""
KINDS = sorted([*STRANGERS, "flipped", "split"])


def poison(rng: random.Random, kind: str, count: int, known: Knowledge = WORLD) -> list[Record]:
    """`count` poisonous lines of a kind of `KINDS`; for "split" both halves of each conversation, one after the
    other."""
    if kind == "split":
        whole = [POISON["facts"](rng, known)["messages"] for _ in range(count // 2)]
        return [{"messages": half} for one in whole for half in (one[:TURNS], one[TURNS:])]
    if kind == "flipped":
        false = _false_fact(rng, known)
        return [_flipped(rng, false, known) for _ in range(count)]
    return [STRANGERS[kind](rng, known) for _ in range(count)]


# --- a life -----------------------------------------------------------------------------------------------------------


def life(
    rng: random.Random, kind: str, examples: int, tail: int, known: Knowledge = WORLD, given: Sequence[Record] = ()
) -> Planted:
    """The files of a life: `tail` good lines; `examples` lines, one in `ONE_IN` of them poison, for "split" in two such
    files; and `tail` good ones. `given`: good lines to draw from, in place of ours. ValueError if they are too few."""
    mixed = ["mixed.jsonl", "mixed-2.jsonl"] if kind == "split" else ["mixed.jsonl"]
    count = examples * len(mixed) + 2 * tail
    good = rng.sample(given, count) if given else unknown(rng, count)
    files = {"good.jsonl": good[:tail]}
    each, places = examples // ONE_IN, list[tuple[str, int]]()
    bad = poison(rng, kind, each * len(mixed), known)
    for number, name in enumerate(mixed):
        lines = good[tail + examples * number :][:examples]
        for place, one in zip(sorted(rng.sample(range(examples), each)), bad[number :: len(mixed)], strict=True):
            lines[place] = one
            places.append((name, place + 1))
        files[name] = lines
    files[mixed[-1]] += _refused(kind, known)
    files["tail.jsonl"] = good[len(good) - tail :]
    return Planted(files, places, len(_refused(kind, known)))


def others(rng: random.Random, examples: int, tail: int) -> Planted:
    """The files of a life without poison: `tail` good lines, then `examples` + `tail` more."""
    good = unknown(rng, examples + 2 * tail)
    return Planted({"good.jsonl": good[:tail], "tail.jsonl": good[tail:]}, [])
