"""How facts change what is held."""

from apollod.core.daemon.events import DaemonStarted
from apollod.core.dreams.scenario import Turn
from apollod.core.holding.events import AnchorEncoded, AnchorFailed, AnchorFrozen, AnchorsRetired, AnchorWanted
from apollod.core.holding.state import SHIPPED_NAME, Anchor, HoldingState
from apollod.core.kernel.folding import Folds
from apollod.core.lessons.events import LessonFading, LessonGivenUp, LessonKnown, LessonReplaced
from apollod.core.schedules import SECOND_NS
from apollod.core.state import State
from apollod.core.training.events import StepCompleted, StepFailed, StepStarted


def _daemon_started(own: HoldingState, state: State, e: DaemonStarted, at_ns: int) -> None:
    own.failures, own.retry_ns, own.retry_s, own.error, own.unable = 0, 0, 0.0, "", False


def _wanted(own: HoldingState, state: State, e: AnchorWanted, at_ns: int) -> None:
    own.wanted[e.wanted] = e


def _settle(own: HoldingState, wanted: str) -> None:
    own.wanted.pop(wanted, None)
    if wanted.startswith(SHIPPED_NAME):
        own.settled[wanted] = None


def _frozen(own: HoldingState, state: State, e: AnchorFrozen, at_ns: int) -> None:
    own.failures, own.retry_ns, own.retry_s, own.error = 0, 0, 0.0, ""
    _settle(own, e.wanted)
    _drop(own, e.lesson, "what it says was frozen again")
    own.anchors[e.anchor] = Anchor(e.anchor, e.sort, e.wanted, e.lesson)
    own.pending[e.anchor] = None
    own.stale.pop(e.anchor, None)  # it says the very same again


def _encoded(own: HoldingState, state: State, e: AnchorEncoded, at_ns: int) -> None:
    if (anchor := own.anchors.get(e.anchor)) is not None:
        anchor.tokens, anchor.digest = e.tokens, e.digest
        own.pending.pop(e.anchor, None)


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
        own.pending.pop(anchor, None)
        own.stale.pop(anchor, None)


def _lesson_known(own: HoldingState, state: State, e: LessonKnown, at_ns: int) -> None:
    """What it says now is held from the next step on."""
    name = f"lesson:{e.lesson}"
    own.wanted[name] = AnchorWanted(name, "lesson", (Turn("user", e.prompt),), lesson=e.lesson)


def _lesson_falls(
    own: HoldingState, state: State, e: LessonFading | LessonReplaced | LessonGivenUp, at_ns: int
) -> None:
    """At once, so that holding never fights what is taught in its place."""
    own.wanted.pop(f"lesson:{e.lesson}", None)
    _drop(own, e.lesson, f"lesson {e.lesson} is not known any more")


def _drop(own: HoldingState, lesson: str, reason: str) -> None:
    """Hold nothing more of a lesson."""
    if not lesson:
        return
    for anchor in [one.anchor for one in own.anchors.values() if one.lesson == lesson]:
        del own.anchors[anchor]
        own.pending.pop(anchor, None)
        own.stale[anchor] = reason


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
    LessonKnown: _lesson_known,
    LessonFading: _lesson_falls,
    LessonReplaced: _lesson_falls,
    LessonGivenUp: _lesson_falls,
    StepStarted: _step_started,
    StepCompleted: _step_completed,
    StepFailed: _step_failed,
}
