"""Inputs: everything that can happen to the daemon, as values that `decide` is given.

What the trainer reports crosses the socket in the very form defined in a subject's `inputs` (tagged for msgpack), so
that no field is copied by hand on the way in. For the same reason an event that is recorded as it was reported or
requested is an input itself: the rules record it, or ignore it if it comes too late.
"""

import msgspec


class Input(msgspec.Struct, frozen=True):
    """Base of all inputs."""


class Tick(Input, frozen=True):
    """Time passed; nothing else happened."""


class Advance(Input, frozen=True):
    """Asked by the loop after every other input until nothing more follows: may the next thing begin?"""
