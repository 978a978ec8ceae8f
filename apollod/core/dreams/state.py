"""What is to be learned by dreaming, how far that is, and the dream under way."""

from typing import Literal

import msgspec

from apollod.core.dreams.collapse import Dreamt
from apollod.core.dreams.events import Mode, Purpose
from apollod.core.dreams.machine import Stage
from apollod.core.dreams.scenario import Sketch, Turn
from apollod.core.settings import PatternSettings

KEPT = 1000
"""sketches of each sort that are kept of a pattern"""
RECENT = 20
"""dreams over which a collapse shows"""
OUTSIDE = frozenset({"endpoint", "seeds"})
"""causes that pass by themselves: what is asked then is asked again for as long as it takes"""
NOBODY = "apollod"
"""by whom a test that could not be made is not passed"""
SHARE_SPAN = 200
"""learned examples of which the share of dreams is taken"""

Phase = Literal["active", "settled", "retired"]
Tests = dict[str, tuple[int, int]]
"""(passed, of how many) by mode"""


class HeldOut(msgspec.Struct, frozen=True):
    """A scenario that is only ever tested."""

    scenario: tuple[Turn, ...]
    sketch: Sketch


class Tried(msgspec.Struct, frozen=True):
    """One test of a round over the held-out scenarios."""

    dream: str
    mode: Mode
    contrast: str
    passed: bool
    made: bool = True
    """False: nobody could make it, which is not passed"""


class Course(msgspec.Struct):
    """A pattern and how far it is."""

    pattern: PatternSettings
    by: str
    since_ns: int
    phase: Phase = "active"
    reason: str = ""
    """of its phase, in people's words"""
    held: dict[str, HeldOut] = {}
    """by their dreams"""
    practised: list[Sketch] = []
    varied: list[Sketch] = []
    last_seeds: tuple[str, ...] = ()
    lately: list[tuple[Turn, ...]] = []
    """the last few practised scenarios, which the next one should not repeat"""
    bare: list[bool] = []
    """tests of variations since practice began, or since a final round failed, as many as count; the newest last"""
    contrast: list[tuple[str, bool]] = []
    """the same, with the contrast text; as many of each as count"""
    round: str = ""
    """the last round that a test was made of"""
    tried: list[Tried] = []
    """its tests"""
    baseline: Tests = {}
    final: Tests = {}
    """of the last final round or recheck that is complete"""
    failed: bool = False
    """too few of it passed"""
    weak: tuple[str, ...] = ()
    """contrast texts that failed in it"""
    owed: str = ""
    """the practice after which no variation was tested yet"""
    dreams: int = 0
    practices: int = 0
    tokens: int = 0
    days: int = 0
    """on which it was dreamt of: neither a clock that is put forward or back nor a daemon that is off spends many"""
    day: int = -1
    """the last one, counted from 1970 (UTC)"""
    before: tuple[int, int, int] = (0, 0, 0)
    """practices, tokens and days when it was unsettled the last time: its budget begins anew then"""
    misses: int = 0
    """dreams that were abandoned in a row"""
    missed: str = ""
    """why, the last one"""
    settled_at: int = 0
    """weights version"""
    taken_back: bool = False
    """the weights with which it was settled were rolled back"""
    rechecked: int = 0
    """how many patterns had settled when this one was last tested on its held-out scenarios"""
    harmed_by: dict[str, int] = {}
    """how often each other pattern unsettled it"""
    recent: list[Dreamt] = []
    earliest: list[Dreamt] = []


class Dream(msgspec.Struct):
    """The dream under way."""

    id: str
    pattern: str
    purpose: Purpose
    mode: Mode
    contrast: str
    of: str
    stage: Stage = Stage.IMAGINING
    scenario: tuple[Turn, ...] = ()
    sketch: Sketch | None = None
    answer: str = ""
    answer_sketch: Sketch | None = None
    logprob: float | None = None
    example: str = ""


class Wanted(msgspec.Struct):
    """What somebody asked for. `left`: practices; 0: until everything is settled."""

    pattern: str
    left: int


class DreamsState(msgspec.Struct):
    """Patterns by name, in the order in which they were added."""

    courses: dict[str, Course] = {}
    open: Dream | None = None
    number: int = 0
    """dreams so far"""
    day: int = 0
    """of the last one, counted from 1970 (UTC)"""
    of_day: int = 0
    """dreams of that day"""
    turn: str = ""
    """the pattern that was dreamt of last"""
    settlings: int = 0
    """patterns that settled so far, counted each time"""
    last_settled: str = ""
    at_rest: bool = True
    """nothing follows from any of them until somebody says so or weights are taken back: kept, since it is asked after
    every input"""
    judged: bool = False
    """is the judge needed for any of them?"""
    wanted: Wanted | None = None
    stopped: str = ""
    """why no dream begins until somebody says so; empty: they may"""
    users: bool = True
    """others use the engine, or nobody knows"""
    users_reason: str = ""
    attempts: int = 0
    """of the call under way, that failed"""
    refusals: int = 0
    """of these, what was not for want of something outside"""
    retry_ns: int = 0
    retry_s: float = 0.0
    error: str = ""
    """why the last call had no usable answer; empty after one that had"""
    learned: list[bool] = []
    """of the last SHARE_SPAN learned examples: was it dreamt?"""

    @property
    def awaits_idle(self) -> bool:
        """Does anything wait for others to leave the engine alone?"""
        return not self.stopped and self.wanted is None and (self.open is not None or not self.at_rest)

    @property
    def patterns_active(self) -> bool:
        """Is there anything to dream of?"""
        return any(one.phase != "retired" for one in self.courses.values())
