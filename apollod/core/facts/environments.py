"""Environments: a prompt comes from outside, the served model answers it several times, each answer gets a score from
outside, and the group is learned. Events, inputs, effects and state.
"""

import math
from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input
from apollod.core.schedules import NO_FAILURE, Retry

SOURCE = "environment:"
"""the source of a group, before the environment's name"""
BY_RAILS = "apollod"
"""who pauses an environment whose steps are not healthy"""

Stage = Literal["prompt", "sample", "score", "group"]
"""Where a group failed: the environment gave no prompt, the engine no answers, the environment no scores, or nothing
can be learned from them."""

# --- events ----------------------------------------------------------------------------------------------------------


class GroupEvent(Event, frozen=True):
    """Base of events about one group. `number`: of its prompt in its environment, from 1."""

    environment: str
    number: int

    def key(self) -> str:
        return f"{self.environment} {self.number}"


class GroupSampled(GroupEvent, frozen=True):
    """Result: a prompt was answered, and the answers have scores."""

    kind: ClassVar[str] = "group.sampled"
    example: str
    """the example that learns it; empty: none"""
    scores: tuple[float, ...]
    first: int
    """first version of the weights that sampled it; -1: not known"""
    last: int
    tokens: int
    """sampled tokens of all answers"""
    sampling_s: float = 0.0
    scoring_s: float = 0.0
    left_out: int = 0
    """answers without a score, which are not in the group"""
    reason: str = ""
    """why nothing is learned from it, such as equal scores"""
    asked: str = ""
    """of such a group, the beginning of the prompt's last turn"""
    answer: str = ""
    """and that of its first answer"""


class GroupFailed(GroupEvent, frozen=True):
    """Result: there is no group. The prompt is asked for again after `retry_s` at the earliest, or not at all
    (`given_up`)."""

    kind: ClassVar[str] = "group.failed"
    attempt: int
    stage: Stage
    reason: str
    retry_s: float = 0.0
    given_up: bool = False


class EnvironmentPaused(Event, Input, frozen=True):
    """No further groups of an environment are sampled, and those that wait are not learned. `by`: a person, or apollod
    where its steps were not healthy."""

    kind: ClassVar[str] = "environment.paused"
    environment: str
    by: str
    reason: str = ""

    def key(self) -> str:
        return self.environment


class EnvironmentResumed(Event, Input, frozen=True):
    """Groups of an environment are sampled again."""

    kind: ClassVar[str] = "environment.resumed"
    environment: str
    by: str

    def key(self) -> str:
        return self.environment


# --- health ----------------------------------------------------------------------------------------------------------
# Ranges of a step's figures outside of which learning by rewards goes wrong, from losses of published runs.

RATIO = (0.8, 1.2)
"""of the mean ratio of a token's probability to the sampler's"""
CLIPPED_MAX = 0.3
"""share of tokens whose gradient the clip takes away"""
ENTROPY_MIN = 0.01
"""nats a token: below, all answers to a prompt are the same"""
LENGTHS = 3.0
"""times by which answers may be longer, or shorter, than the first ones"""
USUAL_OF = 8
"""first steps of an environment whose answers tell the usual length"""
KEPT = 32
"""last steps whose figures are kept"""


class Figures(msgspec.Struct, frozen=True, gc=False):
    """A step that learned a group. `ratio`, `clipped`, `kl`, `entropy`: see trainer/objectives/policy.py, None where
    the step did not say; `age`: steps since the first version of the weights that sampled it; `length`: mean tokens of
    an answer."""

    step: int
    reward: float
    spread: float
    length: float
    age: int
    ratio: float | None = None
    clipped: float | None = None
    kl: float | None = None
    entropy: float | None = None
    note: str = ""
    """why it wrote nothing"""


def unhealthy(one: Figures, usual: float) -> str:
    """The figures of a step that are outside of their healthy range, and the range; empty if none is. `usual`: usual
    length of an answer in tokens, 0: not known yet."""
    found = [f"it wrote nothing: {one.note}"] if one.note else []
    if one.ratio is not None and not RATIO[0] <= one.ratio <= RATIO[1]:
        found.append(f"mean ratio {one.ratio:.3g} ({RATIO[0]:g} to {RATIO[1]:g})")
    if one.clipped is not None and one.clipped > CLIPPED_MAX:
        found.append(f"clipped share {one.clipped:.2f} (at most {CLIPPED_MAX:g})")
    if one.entropy is not None and one.entropy < ENTROPY_MIN:
        found.append(f"entropy {one.entropy:.3g} nats a token (at least {ENTROPY_MIN:g})")
    if usual and not usual / LENGTHS <= one.length <= usual * LENGTHS:
        found.append(f"{one.length:.0f} tokens an answer ({usual / LENGTHS:.0f} to {usual * LENGTHS:.0f})")
    return ", ".join(found)


# --- inputs ----------------------------------------------------------------------------------------------------------


class GroupScored(Input, frozen=True):
    """Answers `SampleGroup`. `line`: the group's record, without one where nothing can be learned, for the `reason`;
    `file`: digest of the file with its rollouts; other fields as of `GroupSampled`."""

    environment: str
    number: int
    scores: tuple[float, ...]
    first: int
    last: int
    tokens: int
    line: Line | None = None
    file: str = ""
    reason: str = ""
    sampling_s: float = 0.0
    scoring_s: float = 0.0
    left_out: int = 0
    asked: str = ""
    answer: str = ""


class GroupNotScored(Input, frozen=True):
    """There is no group, at this `attempt`. `for_good`: another attempt would fail likewise; `outside`: engine or
    environment do not answer at all, which says nothing about the prompt; `retry_after_s`: wait that one requests."""

    environment: str
    number: int
    attempt: int
    stage: Stage
    reason: str
    for_good: bool = False
    outside: bool = False
    retry_after_s: float = 0.0


# --- effects ---------------------------------------------------------------------------------------------------------


class SampleGroup(Effect, frozen=True):
    """Have a prompt answered and the answers scored; answered by `GroupScored` or `GroupNotScored`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("environment", "number", "attempt")
    environment: str
    number: int
    attempt: int


# --- state -----------------------------------------------------------------------------------------------------------


class Group(msgspec.Struct, frozen=True, gc=False):
    """A group that is not learned yet. `first`: see `GroupSampled`; `reward`, `spread`: mean and standard deviation of
    its scores; `length`: mean sampled tokens of an answer."""

    number: int
    first: int
    reward: float
    spread: float
    length: float

    @classmethod
    def of(cls, e: GroupSampled) -> "Group":
        """The group of this event."""
        mean = math.fsum(e.scores) / len(e.scores)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in e.scores) / len(e.scores))
        return cls(e.number, e.first, mean, spread, e.tokens / len(e.scores))


class Environment(msgspec.Struct):
    """State of an environment: its prompts, the groups that wait, and how its steps went."""

    last: int = 0
    """all prompts up to this number are done"""
    done: tuple[int, ...] = ()
    """numbers above `last` that are done, too"""
    attempts: dict[int, int] = {}
    """failed attempts at prompts that are not done"""
    waiting: dict[str, Group] = {}
    """groups that are not learned yet, by example"""
    learned: int = 0
    flat: int = 0
    """groups from which nothing can be learned, mostly since all scores are equal"""
    failed: int = 0
    """prompts that were given up"""
    outdated: int = 0
    """groups that were not learned, since they were too old or could not be"""
    paused_by: str = ""
    reason: str = ""
    """why it is paused, or the last failure; empty after a group"""
    retry: Retry = NO_FAILURE
    recent: list[Figures] = []
    """of the last steps"""
    lengths: tuple[float, ...] = ()
    """of the first USUAL_OF steps since it was last resumed"""
    unhealthy: int = 0
    """last steps in a row with figures outside of their range"""

    @property
    def usual(self) -> float:
        """Usual tokens of an answer; 0: not known yet."""
        return math.fsum(self.lengths) / len(self.lengths) if len(self.lengths) >= USUAL_OF else 0.0

    def upcoming(self, count: int) -> list[int]:
        """Numbers of the next prompts."""
        numbers, number = list[int](), self.last
        while len(numbers) < count:
            number += 1
            if number not in self.done:
                numbers.append(number)
        return numbers

    def finish(self, number: int) -> None:
        """Note that a prompt is done; only the fold calls this."""
        self.attempts.pop(number, None)
        done = {*self.done, number}
        while self.last + 1 in done:
            self.last += 1
        self.done = tuple(sorted(one for one in done if one > self.last))


class EnvironmentCarried(Event, frozen=True):
    """State of an environment at the end of the journal's archive; see the fields of `Environment`."""

    kind: ClassVar[str] = "environment.carried"
    environment: str
    last: int
    done: tuple[int, ...] = ()
    waiting: dict[str, Group] = {}
    learned: int = 0
    flat: int = 0
    failed: int = 0
    outdated: int = 0
    paused_by: str = ""
    reason: str = ""
    recent: tuple[Figures, ...] = ()
    lengths: tuple[float, ...] = ()
    unhealthy: int = 0

    def key(self) -> str:
        return self.environment


class EnvironmentsState(msgspec.Struct):
    """Environments by name, those that are no longer configured, too."""

    named: dict[str, Environment] = {}

    def of(self, example: str) -> tuple[str, Environment] | None:
        """The environment whose group waits as this example."""
        return next(((name, one) for name, one in self.named.items() if example in one.waiting), None)
