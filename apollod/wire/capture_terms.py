"""The settings of capture that the supervisor passes to the engine in its environment."""

import os
from collections.abc import Mapping

import msgspec

VARIABLE = "APOLLOD_CAPTURE"
"""Environment variable: `CaptureTerms` as JSON; if unset, nothing is kept."""


class CaptureTerms(msgspec.Struct, frozen=True):
    """Answers are kept in the file `path`, which takes at most `max_bytes` of disk; none longer than `keep_s` seconds.
    `personal`: personal data is removed as well."""

    path: str
    max_bytes: int
    keep_s: float
    personal: bool = False


def capture_terms(environ: Mapping[str, str] = os.environ) -> CaptureTerms | None:
    """The terms in this environment; None if nothing is to be kept."""
    given = environ.get(VARIABLE)
    return msgspec.json.decode(given, type=CaptureTerms) if given else None
