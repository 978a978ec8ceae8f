"""How facts change what is held."""

from apollod.core.daemon.events import DaemonStarted
from apollod.core.holding.events import AnchorEncoded, AnchorFailed, AnchorFrozen, AnchorsRetired, AnchorWanted
from apollod.core.holding.state import Anchor, HoldingState
from apollod.core.kernel.folding import Folds
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.core.training.events import StepCompleted, StepFailed, StepStarted


def _daemon_started(own: HoldingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.failures, own.retry_ns, own.retry_s, own.error, own.unable = 0, 0, 0.0, "", False


def _wanted(own: HoldingState, state: State, e: AnchorWanted, at_ns: int) -> None:
    own.wanted[e.wanted] = e


def _settle(own: HoldingState, wanted: str) -> None:
    if own.wanted.pop(wanted, None) is None:
        own.settled[wanted] = None


def _frozen(own: HoldingState, state: State, e: AnchorFrozen, at_ns: int) -> None:
    own.failures, own.retry_ns, own.retry_s, own.error = 0, 0, 0.0, ""
    _settle(own, e.wanted)
    own.anchors[e.anchor] = Anchor(e.anchor, e.sort, e.wanted, e.lesson)


def _encoded(own: HoldingState, state: State, e: AnchorEncoded, at_ns: int) -> None:
    if (anchor := own.anchors.get(e.anchor)) is not None:
        anchor.tokens, anchor.digest = e.tokens, e.digest


def _failed(own: HoldingState, state: State, e: AnchorFailed, at_ns: int) -> None:
    own.error = e.reason
    if e.gives_up == "one":
        _settle(own, e.wanted)
        return
    own.failures += 1
    own.unable = e.gives_up == "all"
    own.retry_ns, own.retry_s = at_ns + int(e.retry_s * SECOND_NS), e.retry_s


def _retired(own: HoldingState, state: State, e: AnchorsRetired, at_ns: int) -> None:
    for anchor in e.anchors:
        own.anchors.pop(anchor, None)


def _step_started(own: HoldingState, state: State, e: StepStarted, at_ns: int) -> None:
    own.open = e.held
    own.turns += bool(e.held)
    for id_ in e.held:
        if (anchor := own.anchors.get(id_)) is not None:
            anchor.turn = own.turns


def _step_completed(own: HoldingState, state: State, e: StepCompleted, at_ns: int) -> None:
    for id_, moved in zip(own.open, e.held, strict=False):  # none where nothing was written
        if (anchor := own.anchors.get(id_)) is not None:
            anchor.moved = moved
    own.open = ()


def _step_failed(own: HoldingState, state: State, e: StepFailed, at_ns: int) -> None:
    own.open = ()


FOLDS: Folds = {
    DaemonStarted: _daemon_started,
    AnchorWanted: _wanted,
    AnchorFrozen: _frozen,
    AnchorEncoded: _encoded,
    AnchorFailed: _failed,
    AnchorsRetired: _retired,
    StepStarted: _step_started,
    StepCompleted: _step_completed,
    StepFailed: _step_failed,
}
