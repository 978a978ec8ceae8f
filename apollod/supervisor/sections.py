"""The sections of the configuration: keys, meanings and defaults."""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from apollod.adapters.system.timetable import hours_of, zone_of
from apollod.core.dreams.patterns import pattern_problem
from apollod.core.intake.events import StripLevel
from apollod.core.intake.evidence import Learn
from apollod.core.lessons.distances import distance_of
from apollod.core.settings import (
    CheckpointSettings,
    DreamSettings,
    JudgeSettings,
    LessonSettings,
    NotNegative,
    Products,
    QualitySettings,
    QueueSettings,
    Recompute,
    ReviewSettings,
    ScheduleSettings,
    SignalsSettings,
    TrainerSettings,
)
from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.model.layers import parse_layers


def review_share(rule: str) -> float:
    """Share of a source's examples that wait for a person: of "auto" none, of "hold" all, of "sample:0.1" a tenth.
    Raises ValueError."""
    if rule in _SHARES:
        return _SHARES[rule]
    name, _, share = rule.partition(":")
    try:
        found = float(share) if name == "sample" else -1.0
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1.0:
        raise ValueError(f'review = "{rule}" is none of "auto", "hold", and "sample:0.1" with any share from 0 to 1')
    return found


_SHARES = {"auto": 0.0, "hold": 1.0}


class StateSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The directory of apollod's own files."""

    dir: str = "/var/lib/apollod"
    """journal, checkpoints, quarantine, logs of the children"""


class ModelSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model."""

    path: str
    """a local Hugging Face directory with safetensors"""


class EngineSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535)] = 8000
    args: tuple[str, ...] = ()
    """more arguments of vLLM's API server, for example ["--max-model-len", "32768"]"""
    served_name: str = "apollo"
    api_key: str = ""
    """required from every HTTP client when set; better given as a credential `engine.api_key`"""
    threads: NotNegative = 0
    """CPU only: cores of the engine; 0 means half of them"""
    kv_cache_mib: NotNegative = 0
    """memory of the KV cache; 0: on a GPU what weights and training leave, else 512"""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """an engine that answers nothing for so long, not even with one token, hangs: it is ended, and another one is
    started; 0: never"""
    names: tuple[str, ...] = ()
    """what clients call the server besides its address and localhost, such as ["apollo.lan", "web.lan:3000"]; requests
    and web pages from elsewhere may change nothing"""


class TrainerSection(TrainerSettings, frozen=True, forbid_unknown_fields=True):
    """The optimizer and what it is fed. Most keys are declared in `core.settings`; these are for this machine
    alone."""

    gradient_checkpointing: Recompute = "auto"
    """layers are computed again in the backward pass instead of kept, which takes less memory, a forward pass more, and
    changes no bit; auto: where a step of `max_tokens` and its anchors would not fit otherwise"""
    products: Products = "auto"
    """CPU only: what bf16 matrices are multiplied in; auto: float32 on a processor without instructions for bf16"""
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """a trainer that owes an answer and gives none for so long hangs: it is ended, and another one goes on; 0: never"""

    def __post_init__(self) -> None:
        if 0 < self.limiter < 1:
            raise ValueError(f"limiter = {self.limiter} is neither 0 (no limit) nor a growth of at least 1")
        if 0 < self.loss_spike <= 1:
            raise ValueError(
                f"loss_spike = {self.loss_spike} would refuse a usual loss; use more than 1, or 0 for no limit"
            )
        parse_layers(self.layers)
        if self.moments != "float32" and self.name not in ("apollo", "adamw"):
            raise ValueError(f'moments = "{self.moments}" is for apollo and adamw; {self.name} has no choice of them')
        if self.kernels == "triton" and self.name != "apollo":
            raise ValueError(f'kernels = "triton" is for apollo; {self.name} has none')


class InboxSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The watched directory."""

    path: str = ""
    """default: `inbox` in the state directory"""
    max_line_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    rescan_s: Annotated[float, Meta(gt=0.0)] = 5.0
    near_duplicate: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.9
    """a text of 40 words or more that has so much in common with one that was accepted is not learned (share of its
    groups of three words, estimated); 0: only what is the same. For watched directories, too"""
    review: str = "auto"
    """what waits for `apollod ctl example approve`: "hold" all, "sample:0.1" a tenth, "auto" nothing"""
    learn: Learn = "unrejected"
    """which answers of session logs are learned: "unrejected", those that nothing in a log speaks against (a
    correction, an undo, a refusal, a failed check); "positive", of these only what something speaks for; "all"; the
    others wait for a verdict or a person. Rows of data sets are learned as they are"""

    def __post_init__(self) -> None:
        review_share(self.review)


class WatchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory of agent logs and databases, with all below it; or one database."""

    path: str
    format: str = "auto"
    """of its files, as `apollod ctl source test` names it; auto: by their content"""
    mode: Literal["auto", "tail", "poll"] = "auto"
    """tail: files that grow, told of by the system; poll: databases, looked at every `poll_s`; auto: both, as far as
    the path holds them"""
    models: tuple[str, ...] = ()
    """whose answers are learned, others are context; default: those of the model as it is served; "*": everybody's"""
    strip: StripLevel = "memory"
    """what is taken out of conversations before they are learned: memory (surfaced memories and reminders), system
    (also system prompts), all (also tools and what programs tell about themselves), none"""
    strip_patterns: tuple[str, ...] = ()
    """regular expressions: what they match is taken out, too"""
    sidechains: bool = False
    """learn also what agents did that another one started"""
    tier: Literal["direct", "bulk"] = "bulk"
    """with which rate and before what its examples are learned"""
    context_tokens: Annotated[int, Meta(ge=1)] = 4096
    """of conversation before what is learned, roughly, and at most `[trainer] max_tokens`: prompts further back are
    left out"""
    settle_s: Annotated[float, Meta(ge=1.0)] = 60.0
    """a conversation to which nobody added anything for so long is taken as far as it goes"""
    poll_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """how often databases are looked at"""
    review: str = "auto"
    """as in [inbox]"""
    learn: Learn = "unrejected"
    """as in [inbox]"""

    def __post_init__(self) -> None:
        review_share(self.review)
        for pattern in self.strip_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"strip_patterns: {pattern!r} is no regular expression: {error}") from error

    @property
    def directory(self) -> Path:
        return Path(self.path).expanduser().absolute()


class RedactionSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Redaction of texts, besides credentials, before anything is stored."""

    personal: bool = False
    """e-mail addresses, telephone numbers, IBANs and numbers of payment cards, too; of what is read from then on"""


class CaptureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Capture of the engine's own answers: prompt and tokens, by response id, without credentials."""

    mode: Literal["off", "feedback", "all"] = "off"
    """feedback: a rating finds the exact tokens of its answer; all: so do logs that name the response"""
    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 256 << 20
    """of disk; the oldest answers go first"""
    keep_s: Annotated[float, Meta(gt=0.0)] = 86400.0
    """older answers are forgotten"""


class ReviewSection(ReviewSettings, frozen=True, forbid_unknown_fields=True):
    """Examples that wait for a person."""

    divergence_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.05
    """of the time, at most, in which the engine is asked for scores"""
    alternate: bool = False
    """beside a score: what the model answers without what was stripped"""


class QueueSection(QueueSettings, frozen=True, forbid_unknown_fields=True):
    """The order in which examples from files and logs are learned, and for how long they wait."""


class JudgeSection(JudgeSettings, frozen=True, forbid_unknown_fields=True):
    """A model that judges examples before they are learned. Most keys are declared in `core.settings`."""

    base_url: str = ""
    """of an OpenAI-compatible endpoint, up to and including /v1; empty: our own engine"""
    api_key: str = ""
    """of that endpoint; better given as a credential `judge.api_key`"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 120.0
    """of one request"""
    max_tokens: Annotated[int, Meta(ge=64)] = 2048
    """of one answer; with its question it has to fit into the context of that endpoint"""
    priority: int | Literal["auto"] = "auto"
    """of its requests at vLLM, higher is later. auto: 10 at our own engine, which then serves by priority; not sent
    elsewhere"""
    cases: tuple[str, ...] = ()
    """files of cases of your own whose right verdict is known, besides those that come with apollod"""

    def __post_init__(self) -> None:
        if self.votes > 1 and self.temperature == 0.0:
            raise ValueError(f"votes = {self.votes} at temperature = 0 are {self.votes} times the same; use one vote")
        if self.base_url and not self.model:
            raise ValueError("base_url needs model, the name under which that endpoint serves it")
        if self.model and not self.base_url:
            raise ValueError("model needs base_url; without both the served model judges")
        if self.api_key and not self.base_url:
            raise ValueError("api_key needs base_url; our own engine is asked with [engine] api_key")
        if self.base_url:
            from apollod.adapters.llm.endpoint import Endpoint  # here for start-up time

            Endpoint(self.base_url, self.model, self.api_key)  # refuses what it cannot ask


class ScheduleSection(ScheduleSettings, frozen=True, forbid_unknown_fields=True):
    """Learning hours of examples that are not urgent."""

    def __post_init__(self) -> None:
        zone_of(self.zone)
        if self.nightly:
            hours_of(self.nightly)
        elif self.dream == "night":
            raise ValueError('dream = "night" needs nightly, the hours in which dreams may begin')


class DreamSection(DreamSettings, frozen=True, forbid_unknown_fields=True):
    """Dreams: what is learned by practice, and when. Most keys, and those of [[dream.pattern]], are declared in
    `core.settings`."""

    base_url: str = ""
    """of an OpenAI-compatible endpoint that imagines scenarios, up to and including /v1; empty: our own engine"""
    api_key: str = ""
    """of that endpoint; better given as a credential `dream.api_key`"""
    model: str = ""
    """that imagines; empty: the served model"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 120.0
    """of one call; to our own engine times as many as are made side by side"""
    max_tokens: Annotated[int, Meta(ge=16)] = 1024
    """of a scenario"""
    answer_tokens: Annotated[int, Meta(ge=1)] = 1024
    """of an answer; one that is cut off is not learned, and is tested by what is there of it"""

    def __post_init__(self) -> None:
        if not self.surroundings or len(set(self.surroundings)) < len(self.surroundings):
            every = ", ".join(SURROUNDING_KINDS)
            raise ValueError(f'surroundings names each kind once, at least one of {every}; ["none"] is without any')
        names = [pattern.name for pattern in self.pattern]
        for pattern in self.pattern:
            if (problem := pattern_problem(pattern)) or names.count(pattern.name) > 1:
                raise ValueError(f"[[dream.pattern]] {pattern.name}: {problem or 'there are several of this name'}")
        if self.base_url and not self.model:
            raise ValueError("base_url needs model, the name under which that endpoint serves it")
        if self.model and not self.base_url:
            raise ValueError("model needs base_url; without both the served model imagines")
        if self.api_key and not self.base_url:
            raise ValueError("api_key needs base_url; our own engine is asked with [engine] api_key")
        if self.base_url:
            from apollod.adapters.llm.endpoint import Endpoint  # here for start-up time

            Endpoint(self.base_url, self.model, self.api_key)  # refuses what it cannot ask


class QualitySection(QualitySettings, frozen=True, forbid_unknown_fields=True):
    """Probes that tell whether the model gets worse. Most keys are declared in `core.settings`."""

    probe: tuple[str, ...] = ()
    """files of probes of your own, besides those that come with apollod: docs/formats.md"""
    levels: Annotated[int, Meta(ge=0, le=3)] = 3
    """of difficulty, up to which probes that come with apollod are asked; 1: the easy ones only; 0: none"""
    on_alarm: str | tuple[str, ...] = ""
    """told when an alarm is raised and when it is settled: a URL (http or https), to which JSON is posted, or a command
    that has it on standard input, such as ["/etc/apollod/alarm.sh"]; a text that is no URL is a command by itself"""

    @property
    def is_on(self) -> bool:
        """True if the model is measured by itself, or with probes of a person's own. Then no probe is learned."""
        return bool(self.every_steps or self.probe)


class SignalsSection(SignalsSettings, frozen=True, forbid_unknown_fields=True):
    """Evidence from logs about answers."""


class LessonSection(LessonSettings, frozen=True, forbid_unknown_fields=True):
    """Lessons: how they are taught, and what steps hold meanwhile."""

    def __post_init__(self) -> None:
        for text in self.ask_again:
            try:
                distance_of(text)
            except ValueError as error:
                raise ValueError(f"ask_again: {error}") from error


class CheckpointSection(CheckpointSettings, frozen=True, forbid_unknown_fields=True):
    """Checkpoints: when weights and optimizer go to disk. Most keys are declared in `core.settings`."""

    undo_bytes: NotNegative | Literal["auto"] = "auto"
    """of host memory for undoing the last steps without a checkpoint; a step takes about a sixth of the weights, and
    the optimizer's state. auto: for 6 steps, as far as half of the free memory holds them, at least 1 GiB"""
    hook: tuple[str, ...] = ()
    """command that is run after each checkpoint, such as ["/etc/apollod/offsite.sh"]; see contrib/hooks"""
    hook_timeout_s: Annotated[float, Meta(gt=0.0)] = 3600.0


class LogSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The daemon's own log, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"
