"""Lessons, what steps hold, and dreams."""

import msgspec


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """Lessons of all kinds, by their state; a behaviour's id is its pattern's name."""

    waiting: int = 0
    """their turn has not come"""
    practising: int = 0
    known: int = 0
    fading: int = 0
    """were known, and wait for their turn"""
    replaced: int = 0
    """another one has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """under way; empty: none is"""
    stage: str = ""
    """what it waits for"""
    reason: str = ""
    """why nothing is asked or prepared for a lesson now, or dreamt where only behaviours are left; empty where it may
    be"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: at none"""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Anchors: what steps hold of the model's earlier answers."""

    hold: float = 0.0
    """as in [lessons]; 0: nothing is held"""
    anchors: int = 0
    """answers that can be held"""
    approved: int = 0
    """of them, answers of the model to people that were approved"""
    missing: int = 0
    """that are still to be frozen"""
    moved: float | None = None
    """how far the model is from them, nats a token, as each was measured last; null: none was yet"""
    reason: str = ""
    """why none could be frozen when it was tried last; empty when all is well"""


class Dreams(msgspec.Struct, frozen=True, kw_only=True):
    """Dreams: what is learned by practice."""

    mode: str = ""
    """`idle`, `always` or `off`; empty before the first start"""
    reason: str = ""
    """why nothing is dreamt now; empty where something is, or may begin"""
    active: int = 0
    """patterns that are practised; so `settled`, which are shown untold, and `retired`, which were given up"""
    settled: int = 0
    retired: int = 0
    pattern: str = ""
    """of which was dreamt last"""
    dream: str = ""
    """under way; empty: none is"""
    stage: str = ""
    """what it waits for"""
    next: str = ""
    """what is dreamt next, or now, in words"""
    today: int = 0
    """dreams that began on this day (UTC)"""
    total: int = 0
    share: float | None = None
    """of dreams among the last 200 examples that were learned; null: none was learned since there are patterns"""
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""
