"""The shape of a policy: what follows from each input, as far as one subject is concerned."""

from collections.abc import Callable, Mapping
from typing import Any

from apollod.core.kernel.input import Input
from apollod.core.kernel.outcome import Outcome

Handler = Callable[[Any, Any, int], Outcome]
"""(state, input, now_ns). The state is read, never changed."""

Handlers = Mapping[type[Input], Handler]
"""By input."""
