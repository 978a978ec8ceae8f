"""Fences, as the journal tells them."""

import msgspec


class PublishingState(msgspec.Struct):
    """Fences around writes: whether requests wait for one."""

    engine_paused: bool = False
    """requests wait for a fenced write"""
    serve_until_ns: int = 0
    """no fenced step before this time: requests run for as long as they waited"""
    serve_s: float = 0.0
    """the wait that ends then"""
    fence_expired: bool = False
    """the write went on after the longest pause; what follows until the next step is not fenced"""
