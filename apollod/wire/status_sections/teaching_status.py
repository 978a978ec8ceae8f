"""The parts of `status` about lessons, anchors and dreams."""

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
    """another lesson has another answer to the same question"""
    given_up: int = 0
    lesson: str = ""
    """the one under way; empty: none"""
    stage: str = ""
    """its stage"""
    reason: str = ""
    """why no lesson is asked or prepared now, or, if only behaviours are left, no dream is made; empty: nothing
    prevents it"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
    due_at: float | None = None
    """Unix time at which a known one is asked again; null: none"""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Anchors: the model's earlier answers that steps hold."""

    hold: float = 0.0
    """as in [lessons]; 0: none is held"""
    anchors: int = 0
    """answers that can be held"""
    approved: int = 0
    """those among them that are approved answers of the model to users"""
    missing: int = 0
    """anchors still to be frozen"""
    moved: float | None = None
    """mean divergence from them, nats a token, as last measured; null: not measured yet"""
    reason: str = ""
    """why the last attempt to freeze failed; empty: all is well"""


class Dreams(msgspec.Struct, frozen=True, kw_only=True):
    """Dreams: learning by practice."""

    mode: str = ""
    """`idle`, `always` or `off`; empty before the first start"""
    reason: str = ""
    """why no dream is made now; empty: one is, or may begin"""
    active: int = 0
    """patterns that are practised; likewise `settled`, shown untold, and `retired`, given up"""
    settled: int = 0
    retired: int = 0
    pattern: str = ""
    """pattern of the last dream"""
    dream: str = ""
    """the one under way; empty: none"""
    stage: str = ""
    """its stage"""
    next: str = ""
    """the next or present dream, in words"""
    today: int = 0
    """dreams that began on this day (UTC)"""
    total: int = 0
    share: float | None = None
    """share of dreams among the last 200 learned examples; null: none was learned since there are patterns"""
    error: str = ""
    """why the last call had no usable answer; empty after a usable one"""
