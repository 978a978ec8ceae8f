"""How hard a run of the suite looks. `make test` draws a share of the random cases and leaves out variants that others
cover; `make crash` sets APOLLOD_LONG=1 and takes all of them."""

import os
from typing import Any

from hypothesis import settings

LONG = os.environ.get("APOLLOD_LONG", "") not in ("", "0")


def draws(here: int, long: int) -> settings:
    """Hypothesis settings of a test: how many cases to draw in `make test` and in `make crash`."""
    return settings(max_examples=long if LONG else here)


def cases(here: list[Any], long: list[Any]) -> list[Any]:
    """Parameters of a test: those of every run, and the ones that only the long run adds."""
    return here + (long if LONG else [])
