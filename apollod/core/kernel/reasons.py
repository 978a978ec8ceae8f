"""Shortens messages from outside to the length of an event's reason. Pure."""

REASON_MAX = 300
"""characters"""


def one_line(text: str) -> str:
    """One line of at most REASON_MAX characters."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 3]}..."
