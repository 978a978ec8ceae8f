"""Builds the events by which a continued journal takes over bootstraps from its archive, so that one can be resumed."""

from collections.abc import Iterator

from apollod.core.bootstrap.events import BootstrapCarried
from apollod.core.bootstrap.state import BootstrapState
from apollod.core.kernel.composing import composed
from apollod.core.kernel.event import Event

NAMED_MAX = 1000
"""examples named by one event"""


def bootstraps_taken_over(own: BootstrapState, at_ns: int) -> Iterator[tuple[int, Event]]:
    """Times (ns since 1970) and events that fold to `own`, in order; none is under way."""
    for one in own.known:
        yield one.since_ns, one.request
        waiting = tuple(one.waiting)
        for at in range(0, max(1, len(waiting)), NAMED_MAX):
            carried = composed(BootstrapCarried, one, path=one.request.path, waiting=waiting[at : at + NAMED_MAX])
            yield at_ns, carried
