"""Learned comparisons: pairs of answers (`dpo`) and rated answers (`kto`). Folds and status. `intake`
accepts them like any other example; `training` reads z0 from the state."""

import msgspec

from apollod.core.facts.daemon import JournalCarried
from apollod.core.facts.preferences import KEPT, PreferencesState
from apollod.core.facts.training import StepCompleted, all_examples
from apollod.core.kernel.policy import Folds, Handlers
from apollod.core.state import State

# --- folds of events into the state ----------------------------------------------------------------------------------


def _completed(own: PreferencesState, state: State, e: StepCompleted, at_ns: int) -> None:
    running = state.training.running
    if running is None or not e.applied:
        return
    if running.begun.objective == "dpo":
        own.pairs += len(all_examples(e))
        own.margins = _kept(own.margins, e.metrics.get("margin"))
    elif running.begun.objective == "kto":
        own.ratings += len(all_examples(e))
        own.gained = _kept(own.gained, e.metrics.get("gained"))
    else:
        return
    own.right = _kept(own.right, e.metrics.get("right"))


def _kept(before: tuple[float, ...], value: float | None) -> tuple[float, ...]:
    return before if value is None else (*before, value)[-KEPT:]


def _carried(own: PreferencesState, state: State, e: JournalCarried, at_ns: int) -> None:
    own.pairs, own.ratings = e.pairs, e.ratings
    own.margins, own.right, own.gained = e.margins, e.right, e.gained


FOLDS: Folds = {StepCompleted: _completed, JournalCarried: _carried}
HANDLERS: Handlers = {}


# --- status ----------------------------------------------------------------------------------------------------------


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """Learned pairs of answers and ratings. Figures are means over the last steps, each before its
    write, null before the first."""

    pairs: int = 0
    """pairs learned by dpo"""
    ratings: int = 0
    """rated answers learned by kto"""
    margin: float | None = None
    """of pairs: beta times the nats by which the model prefers the better answer more than the reference did"""
    right: float | None = None
    """share whose better side the model had gained before it learned them"""
    gained: float | None = None
    """of ratings: nats that an answer gained over its reference"""
    gathered: int = 0
    """rated answers that wait until there are `ratings_per_step`"""
    ratings_per_step: int = 1
    z0: float = 0.0
    """of the next step by kto, in nats an answer"""


def status(state: State) -> Preferences:
    """Comparisons that were learned."""
    own = state.preferences
    return Preferences(
        pairs=own.pairs, ratings=own.ratings, margin=_mean(own.margins), right=_mean(own.right),
        gained=_mean(own.gained), gathered=len(state.intake.gathered),
        ratings_per_step=state.intake.ratings_per_step, z0=own.zero,
    )  # fmt: skip


def _mean(values: tuple[float, ...]) -> float | None:
    return sum(values) / len(values) if values else None
