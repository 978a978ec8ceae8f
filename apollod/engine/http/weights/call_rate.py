"""Limits how often trainers begin something: each join is a connection to wherever they say, and each begun update is
written to the journal, whatever becomes of it."""

import time
from collections import deque
from collections.abc import Callable

from apollod.engine.http.weights.call_errors import TooManyCalls

MINUTE_S = 60.0
JOINS, UPDATES = 60, 600
"""most in a minute: groups that are joined, and updates that are begun; a trainer sends the first once, and the second
once a version"""


class CallRate:
    """Counts the calls of the last minute, whoever made them."""

    def __init__(self, what: str, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`what`: the calls, for people. `clock`: seconds."""
        self._what, self._most, self._clock = what, most, clock
        self._times = deque[float]()

    def take(self) -> None:
        """Count a call. Raises TooManyCalls, and does not count it, if the minute has had the most already."""
        now = self._clock()
        while self._times and self._times[0] <= now - MINUTE_S:
            self._times.popleft()
        if len(self._times) >= self._most:
            wait = self._times[0] + MINUTE_S - now
            raise TooManyCalls(
                f"{self._what} more than {self._most} times in a minute", f"wait {wait:.0f} s, or send more at once"
            )
        self._times.append(now)
