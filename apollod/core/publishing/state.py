"""State: fences around writes."""

import msgspec


class PublishingState(msgspec.Struct):
    """Fences around writes."""

    engine_paused: bool = False
    """requests wait for a fenced write"""
    serve_until_ns: int = 0
    """no fenced step before this time: requests run for as long as they waited"""
    serve_s: float = 0.0
    """length of the wait that ends then"""
    fence_expired: bool = False
    """the write went on after the longest pause; writes until the next step are not fenced"""
