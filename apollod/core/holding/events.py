"""Events of anchors: answers of the model that steps hold."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.dreams.scenario import Turn
from apollod.core.kernel.event import Event
from apollod.core.surroundings import NOTHING, Surrounding

Sort = Literal["general", "neighbour", "approved", "lesson", "contrast", "told"]
"""The sort of an anchor. general: any prompt; neighbour: a short question, as lessons are; approved: an answer that the
served model gave, and that a person, a judge or evidence approved; lesson: what a known lesson says; contrast: a good
answer where a behaviour that dreams practise would be wrong; told: what a practice of it learned untold, where it is
told all the same."""


class AnchorWanted(Event, frozen=True):
    """Intent: what the model says to `prompt` is to be held from now on; what a known lesson says is without it.
    `wanted`: its name. `answer`: an answer that the model gave; empty: it is asked for one. `lesson`: id, of a
    lesson's. `around`: what stands before the prompt; `system`: a system message that is held with it; `told`: the one
    that the model gets in its place when it is asked what it thinks of the answer; empty: the same. `pattern`,
    `example`: of a contrast, whose behaviour would be wrong, or of what is told, and what was learned."""

    kind: ClassVar[str] = "anchor.wanted"
    wanted: str
    sort: Sort
    prompt: tuple[Turn, ...]
    answer: str = ""
    lesson: str = ""
    around: Surrounding = NOTHING
    system: str = ""
    told: str = ""
    pattern: str = ""
    example: str = ""

    def key(self) -> str:
        return self.wanted


class AnchorFrozen(Event, frozen=True):
    """The model's answer to a prompt, with its log-probabilities at each token, is recorded. `anchor`: BLAKE2b-128 of
    the canonical `record` and the digest of `teacher`, which names the file with the distribution; `wanted`: name of an
    `anchor.wanted`, of a prompt that ships, or of an approved answer; `weights_version`: -1, where it is not known;
    `question`: what its prompt asks, see `ExampleAccepted`; `example`: that learned the approved answer, a contrast, or
    what is told; `pattern`: of a contrast, or of what is told."""

    kind: ClassVar[str] = "anchor.frozen"
    anchor: str
    record: msgspec.Raw
    teacher: str
    sort: Sort
    wanted: str
    lesson: str = ""
    weights_version: int = -1
    seconds: float = 0.0
    question: str = ""
    example: str = ""
    pattern: str = ""

    def key(self) -> str:
        return self.anchor


class AnchorEncoded(Event, frozen=True):
    """The anchor's tokens, as `example.encoded` has those of an example: it can be held. `targets`: of the answer."""

    kind: ClassVar[str] = "anchor.encoded"
    anchor: str
    tokens: int
    targets: int
    digest: str

    def key(self) -> str:
        return self.anchor


class AnchorFailed(Event, frozen=True):
    """The anchor could not be frozen. `gives_up`: it is not asked for again (`one`), or none is in this life of the
    daemon (`all`: the engine cannot say what it thinks of tokens); else it is after `retry_s`."""

    kind: ClassVar[str] = "anchor.failed"
    wanted: str
    reason: str
    gives_up: Literal["", "one", "all"] = ""
    retry_s: float = 0.0

    def key(self) -> str:
        return self.wanted


class AnchorsRetired(Event, frozen=True):
    """They are not held any more; steps that held them can be run again all the same."""

    kind: ClassVar[str] = "anchor.retired"
    anchors: tuple[str, ...]
    reason: str
