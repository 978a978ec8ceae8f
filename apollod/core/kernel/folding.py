"""The shape of a fold: how one kind of event changes one slice of the state."""

from collections.abc import Callable, Mapping
from typing import Any

from apollod.core.kernel.event import Event

Folds = Mapping[type[Event], Callable[[Any, Any, Any, int], None]]
"""By event type: function of (slice, state, event, at_ns). It writes its slice only, and reads the rest."""
