"""The shapes of a subject: its policy, the consequences of each input, and its fold, the effect of each event on its
slice of the state."""

from collections.abc import Callable, Mapping
from typing import Any

from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.kernel.outcome import Outcome

Folds = Mapping[type[Event], Callable[[Any, Any, Any, int], None]]
"""By event type: function of (slice, state, event, at_ns). It writes its slice only, and reads the rest."""

Handler = Callable[[Any, Any, int], Outcome]
"""Function of (state, input, now_ns). The state is read, never changed."""

Handlers = Mapping[type[Input], Handler]
"""Handlers by input type."""
