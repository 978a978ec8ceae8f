"""Anchors that a journal takes over from its archive: held and wanted ones."""

from collections.abc import Iterator

from msgspec.structs import replace

from apollod.core import events as ev
from apollod.core.facts.holding import SHIPPED_NAME, HoldingState

Dated = tuple[int, ev.Event]


class AnchorNotes:
    """Events of anchors that the next journal takes over, collected in one pass over the archive."""

    def __init__(self) -> None:
        self._frozen: dict[str, Dated] = {}
        self._encoded: dict[str, Dated] = {}
        self._wanted: dict[str, Dated] = {}

    def see(self, recorded: ev.Recorded) -> None:
        """Note the next event."""
        match recorded.event:
            case ev.AnchorWanted(wanted=wanted):
                self._wanted[wanted] = recorded.at_ns, recorded.event
            case ev.AnchorFrozen(anchor=anchor):
                self._frozen[anchor] = recorded.at_ns, recorded.event
            case ev.AnchorEncoded(anchor=anchor):
                self._encoded[anchor] = recorded.at_ns, recorded.event

    def taken_over(self, own: HoldingState, at_ns: int) -> Iterator[Dated]:
        """Events that fold to `own`, in order."""
        for wanted, event in (own.wanted | own.renewed).items():
            yield self._wanted.get(wanted, (at_ns, event))
        for id_, anchor in own.anchors.items():
            at_ns, frozen = self._frozen[id_]
            if anchor.wanted in self._wanted:
                yield self._wanted[anchor.wanted]
            yield at_ns, frozen
            if id_ in self._encoded:
                yield self._encoded[id_]


def carried_holding(own: HoldingState) -> HoldingState:
    """The part of the state that is the same in both journals: divergences are measured anew, and failed anchors are
    tried again."""
    anchors = {id_: replace(one, moved=None, turn=0) for id_, one in own.anchors.items()}
    shipped = {one.wanted: None for one in anchors.values() if one.wanted.startswith(SHIPPED_NAME)}
    return HoldingState(
        anchors=anchors,
        pending=own.pending,
        wanted=own.wanted | own.renewed,
        settled=shipped,
        by_question=own.by_question,
    )
