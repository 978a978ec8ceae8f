"""The part of `status` about dreams: patterns, the next dream, and the reason why none is made now. Pure."""

from collections import Counter

import msgspec

from apollod.core.activities import Activity, blocked
from apollod.core.facts.dreams.course import CONTRASTS_FIRST, Imagine, Move, Settle, Unsettle, next_move
from apollod.core.facts.dreams.held_out_rounds import Case
from apollod.core.facts.dreams.state import Course, Dream
from apollod.core.rules.dreams.policy import in_turn, waits_for
from apollod.core.schedules import DAY_NS
from apollod.core.state import State


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


def status(state: State, now_ns: int) -> Dreams:
    """Patterns by their phase, and the present and next dream."""
    own, settings = state.dreams, state.daemon.settings
    phases = Counter(course.phase for course in own.courses.values())
    return Dreams(
        mode=settings.dream.mode if settings is not None else "", reason=reason(state, now_ns),
        active=phases["active"], settled=phases["settled"], retired=phases["retired"], pattern=own.turn,
        dream=own.open.id if own.open is not None else "", stage=own.open.stage if own.open is not None else "",
        next=upcoming(state), today=own.of_day if own.day == now_ns // DAY_NS else 0, total=own.number,
        share=round(sum(own.learned) / len(own.learned), 4) if own.learned else None, error=own.error,
    )  # fmt: skip


def upcoming(state: State) -> str:
    """The dream under way, or the next one once nothing is in the way; empty: nothing is left to do."""
    own, settings = state.dreams, state.daemon.settings
    if own.open is not None:
        return f"{own.open.pattern}: {_under_way(own.open)}"
    waiting = ""
    for course in in_turn(own):
        if (move := next_move(course, own)) is not None:
            told = f"{course.pattern.name}: {_told(course, move)}"
            if settings is None or not waits_for(course, state, settings):
                return told
            waiting = waiting or told
    return waiting


def reason(state: State, now_ns: int) -> str:
    """Reason why no dream is made now; empty: one is, or may begin."""
    own, settings = state.dreams, state.daemon.settings
    if why := blocked(Activity.DREAMING, state):
        return why
    if not own.retry.is_due(now_ns):
        return f"the last call failed and is made again: {own.error}"
    if own.open is not None or settings is None:
        return ""
    waiting = [waits_for(course, state, settings) for course in in_turn(own) if next_move(course, own)]
    if not waiting:
        return "every pattern is settled; they are tested again when another one settles"
    return waiting[0] if all(waiting) else ""


def reason_of(course: Course, state: State, now_ns: int) -> str:
    """Reason why one pattern is not dreamt of now; empty: it is, or may be."""
    own, settings = state.dreams, state.daemon.settings
    if course.phase == "retired":
        return f"it is retired: {course.reason}"
    move = next_move(course, own)
    if move is None:
        return "it is settled; it is tested again when another pattern settles"
    wait = waits_for(course, state, settings) if settings is not None else ""
    if why := blocked(Activity.DREAMING, state) or wait or reason(state, now_ns):
        return why
    name = course.pattern.name
    if own.open is not None:
        return "" if own.open.pattern == name else f"a dream of {own.open.pattern} is under way, and one is at a time"
    first = next((one for one in in_turn(own) if next_move(one, own) is not None), course)
    if own.wanted is not None and own.wanted.pattern not in ("", name):
        return f"dreams of {own.wanted.pattern} were asked for"
    return "" if first is course else f"it is the turn of {first.pattern.name}"


def next_of(course: Course, state: State) -> str:
    """The next move of one pattern; empty: none."""
    own = state.dreams
    if own.open is not None and own.open.pattern == course.pattern.name:
        return _under_way(own.open)
    move = next_move(course, own)
    return _told(course, move) if move is not None else ""


def _under_way(dream: Dream) -> str:
    noun = "held-out scenario" if dream.purpose == "held-out" else dream.purpose
    return f"{noun} {dream.id}, {dream.stage}"


def _told(course: Course, move: Move) -> str:
    match move:
        case Imagine("held-out"):
            return f"held-out scenario {len(course.held) + 1} of {course.pattern.held_out}"
        case Imagine("situation"):
            return f"situation {len(course.situations) + 1} of {course.pattern.situations} in which it would be wrong"
        case Imagine("contrast"):
            of = CONTRASTS_FIRST * len(course.pattern.contrasts)
            return f"answer in contrast {sum(course.contrasted.values()) + 1} of {of}, to be held"
        case Imagine("variation", of=of):
            return f"variation of {of}"
        case Imagine(_, mode):
            return f"practice {course.practices + 1}" + (" (in contrast)" if mode == "contrast" else "")
        case Case(name, dream, mode, sample=sample):
            return f"test of {dream} ({name}, {mode}{f', sampled answer {sample}' if sample else ''})"
        case Settle():
            return "settlement"
        case Unsettle():
            return "return to practice"
    return ""
