"""Settings of the routes for weights, from the engine's environment: the supervisor sets them from `[control]`."""

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from apollod.adapters.system.web_address import ListenAddress, listen_address
from apollod.errors import ConfigError

CONTROL = "APOLLOD_CONTROL"
"""environment variable: the routes exist if it is 1"""
PAUSE_S = "APOLLOD_CONTROL_PAUSE_S"
"""environment variable: longest pause by a caller, in seconds"""
ADDRESSES = "APOLLOD_CONTROL_ADDRESSES"
"""environment variable: addresses of trainers on other machines, with commas between them"""
LISTEN = "APOLLOD_CONTROL_LISTEN"
"""environment variable: address of these routes, in place of the engine's; empty: there"""
PAUSE_DEFAULT_S = 600.0
PAUSE_MAX_S = 86400.0


class ControlTerms(NamedTuple):
    """Longest pause by a caller, addresses besides this machine's own that a group may be joined at, and where the
    routes are served; None: at the engine's address."""

    pause_s: float = PAUSE_DEFAULT_S
    addresses: frozenset[str] = frozenset()
    listen: ListenAddress | None = None


def control_terms(environ: Mapping[str, str] = os.environ) -> ControlTerms | None:
    """The terms in this environment; None if the routes are off. Raises ConfigError."""
    if environ.get(CONTROL) != "1":
        return None
    given = environ.get(PAUSE_S, "") or str(PAUSE_DEFAULT_S)
    try:
        pause_s = float(given)
    except ValueError:
        pause_s = math.nan
    if not 0 < pause_s <= PAUSE_MAX_S:
        raise ConfigError(f"{PAUSE_S} is {given!r}", f"set it to a number of seconds, at most {PAUSE_MAX_S:g}")
    addresses = (each.strip().lower() for each in environ.get(ADDRESSES, "").split(","))
    return ControlTerms(pause_s, frozenset(each for each in addresses if each), _listen(environ.get(LISTEN, "")))


def _listen(text: str) -> ListenAddress | None:
    try:
        return listen_address(text) if text else None
    except ValueError as error:
        raise ConfigError(f"{LISTEN}: {error}", "set [control] listen, which the supervisor hands on") from error
