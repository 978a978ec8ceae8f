"""Pure functions of a position: learning rate and back-off."""

import math

BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
REFUSED_FIRST_S = 15.0  # a refused start waits for a person, who should not have to wait long for us afterwards
REFUSED_MAX_S = 300.0
EXITS_MAX = 5  # crashes within EXITS_WINDOW_S after which a child is given up until `ctl resume`
EXITS_WINDOW_S = 600.0
CHECKPOINT_RETRY_S = 60.0
STEP_ATTEMPTS_MAX = 3


def learning_rate(peak: float, position: int, planned: int, warmup: float) -> float:
    """Learning rate of the step at `position` (0-based) of a window that opened with `planned` examples.

    Linear warm-up over the first `ceil(warmup * planned)` steps, then constant:
    `peak * min(1, (position + 1) / ceil(warmup * planned))`.
    """
    ramp = math.ceil(warmup * planned)
    return peak if position >= ramp else peak * (position + 1) / ramp


def backoff_s(exits: int) -> float:
    """Seconds to wait before start number `exits + 1`: 1, 2, 4, ... at most 60."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** max(0, exits - 1))


def refused_s(refusals: int) -> float:
    """Seconds to wait after the `refusals`-th refusal in a row: 15, 30, 60, ... at most 300."""
    return min(REFUSED_MAX_S, REFUSED_FIRST_S * 2.0 ** max(0, refusals - 1))
