"""Computes the wait before a retry. Pure."""

FIRST_S = 0.5
MOST_S = 30.0


def backoff_s(attempt: int, jitter: float) -> float:
    """Seconds to wait after failed attempt 1, 2, ...: doubling from FIRST_S up to MOST_S; `jitter` in 0..1 takes off up
    to half, so that clients that failed together do not retry together."""
    return float(min(MOST_S, FIRST_S * 2 ** min(attempt - 1, 30)) * (1 - jitter / 2))


def retry_after_s(header: str, now_s: float) -> float | None:
    """Parse a Retry-After header: seconds, or a date (RFC 9110, 10.2.3); None if it is neither. `now_s`: since the
    epoch."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime  # not at every start of the daemon

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None
