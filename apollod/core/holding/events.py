"""Events of anchors: answers of the model that steps hold."""

from typing import ClassVar, Literal

import msgspec

from apollod.core.dreams.scenario import Turn
from apollod.core.kernel.event import Event
from apollod.core.surroundings import NOTHING, Surrounding

Sort = Literal["general", "neighbour", "approved", "lesson", "contrast", "told"]
"""The sort of an anchor. general: any prompt; neighbour: a short question like those of lessons; approved: an answer
that the served model gave, and that a person, a judge or evidence approved; lesson: the answer of a known lesson;
contrast: a good answer where a behaviour that dreams practise would be wrong; told: an answer that a practice learned
untold, under the instruction."""


class AnchorWanted(Event, frozen=True):
    """Intent: the model's answer to `prompt` is to be held from now on. `wanted`: name of the anchor. `answer`: an
    answer that the model gave; empty: ask for one. `lesson`: id, for the answer of a lesson. `around`: context before
    the prompt; `system`: system message held with it; `told`: the one that replaces it when the model's distribution
    over the answer is recorded; empty: the same. `pattern`, `example`: for a contrast or an answer under an
    instruction, the pattern and the learned example."""

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
    """The model's answer to a prompt was recorded, with its log-probabilities at each token. `anchor`: BLAKE2b-128 of
    the canonical `record` and the digest of `teacher`, which names the file with the distribution; `wanted`: name of an
    `anchor.wanted`, of a prompt that ships, or of an approved answer; `weights_version`: -1: not known; `question`: key
    of the question in its prompt, see `ExampleAccepted`; `example`: the one that learned the approved answer, the
    contrast, or the answer under an instruction; `pattern`: of the latter two."""

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
    """The anchor was tokenised, with fields as in `example.encoded`, and can be held. `targets`: tokens of the
    answer."""

    kind: ClassVar[str] = "anchor.encoded"
    anchor: str
    tokens: int
    targets: int
    digest: str

    def key(self) -> str:
        return self.anchor


class AnchorFailed(Event, frozen=True):
    """The anchor could not be frozen. `gives_up`: not tried again (`one`), or none is in this life of the daemon
    (`all`: the engine cannot return log-probabilities of tokens); else retried after `retry_s`."""

    kind: ClassVar[str] = "anchor.failed"
    wanted: str
    reason: str
    gives_up: Literal["", "one", "all"] = ""
    retry_s: float = 0.0

    def key(self) -> str:
        return self.wanted


class AnchorsRetired(Event, frozen=True):
    """Anchors that are no longer held; steps that held them can still be run again."""

    kind: ClassVar[str] = "anchor.retired"
    anchors: tuple[str, ...]
    reason: str
