"""The shape of a policy: the consequences of each input for one subject."""

from collections.abc import Callable, Mapping
from typing import Any

from apollod.core.kernel.input import Input
from apollod.core.kernel.outcome import Outcome

Handler = Callable[[Any, Any, int], Outcome]
"""Function of (state, input, now_ns). The state is read, never changed."""

Handlers = Mapping[type[Input], Handler]
"""Handlers by input type."""
