"""Inputs: everything that can happen to the daemon, as values that `decide` is given.

What the trainer reports crosses the socket in the very form defined in a subject's `inputs` (tagged for msgpack), so
that no field is copied by hand on the way in.
"""

import msgspec


class Input(msgspec.Struct, frozen=True):
    """Base of all inputs."""


class Tick(Input, frozen=True):
    """Time passed; nothing else happened."""


class Advance(Input, frozen=True):
    """Asked by the loop after every other input until nothing more follows: may the next thing begin?"""
