"""An example that cannot be learned leaves the queue; what waits before it is not touched."""

import msgspec

from apollod.core import events as ev
from apollod.core.fold import fold
from apollod.core.state import State


class Counted(str):
    """An example id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def queue(count: int) -> tuple[State, list[Counted]]:
    """`count` examples wait; none is tokenised."""
    state, ids = State(), [Counted(f"{number:032x}") for number in range(count)]
    for id_ in ids:
        give(state, ev.ExampleAccepted(example=id_, record=msgspec.Raw(b'{"text":"x"}'), source="s", line=1))
    return state, ids


def give(state: State, event: ev.Event) -> None:
    fold(state, ev.Recorded(state.seq + 1, state.seq + 1, event))


def test_the_right_one_leaves_without_a_search() -> None:
    state, ids = queue(1000)
    for id_ in ids[:900]:
        give(state, ev.ExampleEncoded(example=id_, tokens=1, targets=1, cut=0, digest="d"))
    Counted.compared = 0
    give(state, ev.ExampleRejected(example=ids[900], reason="too long"))
    assert Counted.compared < 10, "it was searched for from the far end of the queue"
    assert [waiting.example for waiting in state.intake.bulk.waiting] == [*ids[:900], *ids[901:]]
    assert [waiting.example for waiting in state.intake.bulk.untokenised] == ids[901:]
    assert all(
        one is other
        for one, other in zip(state.intake.bulk.untokenised, list(state.intake.bulk.waiting)[900:], strict=True)
    )
