"""The shipped cases of follow-ups."""

from functools import cache
from importlib.resources import files

from apollod.curation.signals.follow_up_question import FollowUpCase, question_digest, read_follow_up_cases

SHIPPED = "followups.jsonl"


@cache
def _shipped() -> bytes:
    return (files("apollod") / "data" / SHIPPED).read_bytes()


def shipped_cases() -> list[FollowUpCase]:
    """The shipped cases, in the order of the file."""
    return read_follow_up_cases(_shipped().splitlines())


def shipped_digest() -> str:
    """Digest of the question's wording and of the shipped cases."""
    return question_digest(_shipped())
