"""Pure functions of a position: learning rate and back-off."""

import math
from typing import Literal

import msgspec

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
RETRY_MAX_S = 300.0  # between questions to an endpoint that does not answer
REFUSED_FIRST_S = 15.0  # a refused start waits for a person's fix, and has to be tried soon after it
REFUSED_MAX_S = 300.0
EXITS_MAX = 5  # crashes within EXITS_WINDOW_S after which a child is given up until `ctl resume`
EXITS_WINDOW_S = 600.0
CHECKPOINT_RETRY_S = 60.0
STEP_ATTEMPTS_MAX = 3
UNLEARNED_MAX = 3  # steps in a row that wrote nothing after which training halts until `ctl resume`
SPIKE_AFTER = 5  # losses of a window before their mean counts as usual

Schedule = Literal["constant", "cosine"]


def elapsed_s(then_ns: int, now_ns: int) -> float:
    """Seconds since a time, to the millisecond; 0 if it has not come yet or is 0."""
    return round(max(0, now_ns - then_ns) / SECOND_NS, 3) if then_ns else 0.0


def learning_rate(
    peak: float, position: int, planned: int, warmup: float, schedule: Schedule = "constant", floor: float = 0.0
) -> float:
    """Learning rate of the step whose last example has `position` (0-based) in a window of `planned` examples.

    With w = ceil(warmup * planned) and p = min(1, (position - w) / (planned - w)):
        warm-up    position < w:  peak * (position + 1) / w
        constant   then:          peak
        cosine     then:          peak * (floor + (1 - floor) * (1 + cos(pi * p)) / 2)
    as transformers' cosine_with_min_lr, whose warm-up starts with a step at rate 0 that learns nothing. One half
    period, and every window begins anew: the warm restarts of SGDR (Loshchilov and Hutter 2017, arXiv:1608.03983,
    equation 5).
    """
    ramp = math.ceil(warmup * planned)
    if position < ramp:
        return peak * (position + 1) / ramp
    if schedule == "constant":
        return peak
    progress = min(1.0, (position - ramp) / max(1, planned - ramp))
    return peak * (floor + (1.0 - floor) * (1.0 + math.cos(math.pi * progress)) / 2.0)


def risen(updates: int, steps: int) -> float:
    """Share of the learning rate of the next update after `updates`, counted from moments of zero: it rises over the
    first `steps` of them, which such moments would make the largest ones (Ma and Yarats 2021, "On the adequacy of
    untuned warmup for adaptive optimization", arXiv:1910.04209)."""
    return min(1.0, (updates + 1) / steps) if steps else 1.0


def loss_limit(loss_max: float, loss_spike: float, losses: int, total: float) -> float:
    """Loss above which a step writes nothing; 0: no limit.

    The lower one of `loss_max` and, after SPIKE_AFTER of the window's losses, `loss_spike` times their mean (`total /
    losses`). 0 switches either off.
    """
    limits = [loss_max] if loss_max else []
    if loss_spike and losses >= SPIKE_AFTER:
        limits.append(loss_spike * total / losses)
    return min(limits, default=0.0)


def is_due(now_ns: int, at_ns: int, longest_s: float) -> bool:
    """True if `at_ns` has come. `longest_s`: the wait when it was set; a time further ahead was set before the clock
    was put back, and counts as come."""
    return now_ns >= at_ns or at_ns - now_ns > longest_s * SECOND_NS


def falls_due(now_ns: int, from_ns: int, wait_s: float) -> int:
    """Time at which `wait_s` after `from_ns` have passed; `now_ns` if they have. Never more than `wait_s` ahead, see
    `is_due`."""
    at_ns = from_ns + int(wait_s * SECOND_NS)
    return now_ns if is_due(now_ns, at_ns, wait_s) else at_ns


class Retry(msgspec.Struct, frozen=True):
    """Waits between attempts of what failed."""

    failures: int = 0
    """in a row"""
    at_ns: int = 0
    """earliest time of the next attempt"""
    wait_s: float = 0.0
    """the wait that ends then"""

    def is_due(self, now_ns: int) -> bool:
        """True if the next attempt may be made."""
        return is_due(now_ns, self.at_ns, self.wait_s)

    def after(self, at_ns: int, wait_s: float, failures: int = 0) -> "Retry":
        """The retry after one more failure, or after this number of them in a row."""
        return Retry(failures or self.failures + 1, at_ns + int(wait_s * SECOND_NS), wait_s)


NO_FAILURE = Retry()


def left_s(now_ns: int, at_ns: int, longest_s: float) -> float:
    """Seconds until a time has come: never more than `longest_s`, whatever the clock did since it was set."""
    return 0.0 if is_due(now_ns, at_ns, longest_s) else (at_ns - now_ns) / SECOND_NS


def is_recent(now_ns: int, at_ns: int, window_s: float) -> bool:
    """True if `at_ns` is within the last `window_s` seconds. A time later than now dates from before the clock was put
    back: it may be long ago, and does not count."""
    return 0 <= now_ns - at_ns < window_s * SECOND_NS


def backoff_s(exits: int, longest_s: float = BACKOFF_MAX_S) -> float:
    """Seconds to wait before start number `exits + 1`: 1, 2, 4, ... at most `longest_s`."""
    return _doubled(BACKOFF_FIRST_S, exits, longest_s)


def refused_s(refusals: int) -> float:
    """Seconds to wait after the `refusals`-th refusal in a row: 15, 30, 60, ... at most 300."""
    return _doubled(REFUSED_FIRST_S, refusals, REFUSED_MAX_S)


def _doubled(first_s: float, times: int, longest_s: float) -> float:
    """The `times`-th wait. The exponent is limited: counts grow without end, and a float overflows at 2 ** 1024."""
    return min(longest_s, first_s * 2.0 ** min(max(0, times - 1), 64))
