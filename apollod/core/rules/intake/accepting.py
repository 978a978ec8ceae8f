"""Turns lines into examples and has them tokenised, also again; one with a probe of the guard waits for a person."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from apollod.core import effects as fx
from apollod.core.facts.intake.events import ExampleAccepted, Tier
from apollod.core.facts.intake.inputs import Line, Taught
from apollod.core.facts.intake.repeats import Repeated
from apollod.core.facts.rescoring import is_weak
from apollod.core.facts.review import ExampleHeld
from apollod.core.kernel.composing import composed
from apollod.core.shared.places import places_of
from apollod.core.state import State


def accepted(line: Line, source: str, tier: Tier, number: int = 0, **more: Any) -> ExampleAccepted:
    """The event that accepts this line, `number` of `source`, as an example. `more`: fields that the line lacks or that
    override it."""
    sampled = line.sampled or tuple(one.sampled for one in line.responses)
    keys = dict.fromkeys(key for one in line.responses for key in one.keys)
    taken = composed(
        ExampleAccepted, line, record=msgspec.Raw(line.record), source=source, line=number, tier=tier,
        responses=tuple(keys), sampled=sampled if any(one.response or one.prompt for one in sampled) else (),
    )  # fmt: skip
    return msgspec.structs.replace(taken, **more)


def leaked(line: Line) -> str:
    """Reason not to learn a line that holds a probe, which would then measure nothing; empty: it holds none."""
    return f"it holds {line.leak}, which measures nothing any more once this is learned" if line.leak else ""


def held_for_leak(taken: ExampleAccepted, line: Line) -> list[ExampleHeld]:
    """The event that holds the example of this line for a person, if the line holds a probe."""
    why = leaked(line)
    return [ExampleHeld(example=taken.example, tier=taken.tier, reason=why)] if why else []


def begin_encoding(state: State, fresh: list[tuple[str, Tier]]) -> list[fx.Effect]:
    """Have these examples (id, tier), which are about to be queued, tokenised; not while earlier ones are: then these
    follow."""
    if any(queue.untokenised for queue in state.intake.queues) or state.children.trainer.phase != "ready":
        return []
    direct_first = sorted(fresh, key=lambda example: example[1] == "bulk")
    return fx.encode((example for example, _ in direct_first), state.recovery.base_fingerprint)


# Decides which lines teach an example again that was learned before.
#
# A line that was learned is a duplicate, with two exceptions: it was learned weakly (`core.facts.rescoring`), or it
# came from a file or log and is given directly now, which uses another rate. An example that a lesson replaced is
# taught again only if it is given directly, which contradicts the lesson. Repeats in a log stay duplicates: agents copy
# sessions. Each learning is an example of its own, so that forgetting and replay reach each; evidence against one of
# them counts against all.

FROM_FILES_MAX = 3
"""number of learnings after which a line is taught again only if given directly: a file may be rewritten every hour,
with more than the model can learn"""


def again_id(example: str, times: int) -> str:
    """Id of the next learning of an example that was learned `times` times; hex."""
    return blake2b(f"{example} {times}".encode(), digest_size=16, person=b"apollod.again").hexdigest()


def teachable(state: State, taught: Mapping[str, Taught]) -> dict[str, Taught]:
    """Examples, among these, that a line may teach again: learned ones that were not taken back."""
    newest = [found.example for found in taught.values()]
    own, forgetting = state.intake, state.forgetting
    gone = own.undone.keys() | own.withdrawn.keys() | forgetting.wanted.keys() | places_of(state, newest).keys()
    gone |= {one.example for one in own.taken}
    gone |= forgetting.under_way.wishes.keys() if forgetting.under_way is not None else set()
    return {
        example: msgspec.structs.replace(
            found, weak=_is_weak(state, found.example), replaced=found.example in state.lessons.replaced
        )
        for example, found in taught.items()
        if found.example not in gone
    }


def _is_weak(state: State, example: str) -> bool:
    gain = state.rescoring.gains.get(example)
    return gain is not None and is_weak(gain.learned.before, gain.after)


def renewed(line: Line, tier: Tier, repeated: Repeated, again: Mapping[str, Taught]) -> tuple[Line, str] | None:
    """The repeating line in the form in which it is accepted, and the example that it teaches again; None: it is a
    duplicate. `again`: see `teachable`."""
    found = again.get(repeated.of or line.example)
    if repeated.resembles or found is None:
        return None
    if found.replaced and tier != "direct":
        return None
    if not (found.weak or found.replaced) and (tier, found.tier) != ("direct", "bulk"):
        return None
    if tier != "direct" and found.times >= FROM_FILES_MAX:
        return None
    example = line.example if repeated.of else again_id(line.example, found.times)
    return msgspec.structs.replace(line, example=example, responses=(), signature=""), found.example


def family(again: Mapping[str, str], examples: Iterable[str]) -> list[str]:
    """These examples, then all other learnings of the same examples. `again`: see `IntakeState.again`."""
    wanted = list(dict.fromkeys(examples))
    if not again:
        return wanted
    roots = {_root(again, one) for one in wanted}
    every = dict.fromkeys([*wanted, *roots])
    return list(every | {one: None for one in again if _root(again, one) in roots})


def _root(again: Mapping[str, str], example: str) -> str:
    while example in again:
        example = again[example]
    return example


def asked_about(lines: Iterable[tuple[Line, Tier]], known: Collection[str], learned: Mapping[str, str]) -> set[str]:
    """Examples that lines (with their tiers) repeat and may teach again: the same records and, for direct lines,
    examples with the same answers. `learned`: example by key of its answer."""
    found = set[str]()
    for line, tier in lines:
        if line.of_log or not line.example:
            continue
        if line.example in known:
            found.add(line.example)
        elif tier == "direct":
            found |= {learned[key] for one in line.responses for key in one.keys if learned.get(key)}
    return found
