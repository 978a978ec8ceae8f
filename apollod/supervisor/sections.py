"""The sections of the configuration: keys, meanings and defaults."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from apollod.adapters.system.timetable import hours_of, zone_of
from apollod.adapters.system.web_address import ListenAddress, listen_address
from apollod.core.facts.dreams.patterns import pattern_problem
from apollod.core.facts.intake.events import Learn, StripLevel
from apollod.core.facts.lessons.rounds import distance_of
from apollod.core.settings import (
    CheckpointSettings,
    ControlSettings,
    DreamSettings,
    EnvironmentSettings,
    JudgeSettings,
    LessonSettings,
    NotNegative,
    PreferenceSettings,
    Products,
    QualitySettings,
    QueueSettings,
    Recompute,
    ReviewSettings,
    ScheduleSettings,
    SignalsSettings,
    Thinking,
    TrainerSettings,
)
from apollod.core.surroundings import SURROUNDING_KINDS
from apollod.curation.preferences import Preferences
from apollod.model.decoder import parse_layers
from apollod.wire.comparisons import PairTerms, RatedTerms
from apollod.wire.engine_terms import Dialect, SentBy
from apollod.wire.rollouts import Terms


def review_share(rule: str) -> float:
    """Share of a source's examples that wait for a person: "auto" none, "hold" all, "sample:0.1" a tenth. Raises
    ValueError."""
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
    """required from every HTTP client if set; preferably a credential `engine.api_key`"""
    threads: NotNegative = 0
    """CPU only: cores of the engine; 0: half of them"""
    kv_cache_mib: NotNegative = 0
    """memory of the KV cache; 0: on a GPU the rest beside weights and training, else 512"""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """seconds without any answer, not even one token, after which the engine is ended and restarted; 0: never"""
    names: tuple[str, ...] = ()
    """names of the server for clients besides its address and localhost, such as ["apollo.lan", "web.lan:3000"];
    requests and web pages from elsewhere may not change anything"""

    def __post_init__(self) -> None:
        for arg in self.args:
            name = arg.partition("=")[0].partition(".")[0].replace("_", "-")
            if reason := next((why for flag, why in REFUSED_FLAGS.items() if is_short_for(name, flag)), ""):
                raise ValueError(f"args: {arg} {reason}; leave it out")


class ReceiverSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine elsewhere, which has its own copy of the weights."""

    url: Annotated[str, Meta(pattern="^https?://[^/]+$")]
    """its address without /v1, such as "http://10.0.0.2:8000\""""
    dialect: Dialect = "vllm"
    """the words of its routes for weights: vllm (started with VLLM_SERVER_DEV_MODE=1; apollod) or sglang"""
    model: str = ""
    """its name of the model; empty: the first one it lists"""
    api_key: str = ""
    """the key that it requires"""
    directory: str = ""
    """where it finds the files of [weights] directory, for example by NFS; empty: at the same path"""


class WeightsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way of weights from the trainer to the engine: docs/elsewhere.md."""

    bridge: Literal["shared"] | SentBy = "shared"
    """shared: our own vLLM computes with the trainer's memory; else the engines of [[weights.receiver]] get every
    version: disk (they load a directory), memmap (files that are changed by renaming, for readers of their own), gloo
    (a broadcast, to another apollod), tensor (shared memory, to another apollod on this machine), nccl (a broadcast
    from a GPU here to GPUs there), restart (a directory, and `command` restarts them), lora (an adapter, which
    approximates what was learned)"""
    receiver: tuple[ReceiverSection, ...] = ()
    """engines that get the weights and answer requests, in turn"""
    directory: str = ""
    """where versions are written; empty: `sent` in the state directory"""
    command: tuple[str, ...] = ()
    """bridge restart, and lora for an engine that loads no adapter while it runs: command that restarts an engine;
    APOLLOD_WEIGHTS is the directory, APOLLOD_RECEIVER its URL"""
    rank: Annotated[int, Meta(ge=1, le=512)] = 64
    """bridge lora: rank of an adapter"""
    base: str = ""
    """bridge lora: the model directory that the engines have loaded; empty: the weights before the first step"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 600.0
    """longest wait until an engine has loaded a version"""

    def __post_init__(self) -> None:
        if self.bridge != "shared" and not self.receiver:
            raise ValueError(f'bridge = "{self.bridge}" sends weights to no engine; add a [[weights.receiver]]')
        if self.bridge == "shared" and self.receiver:
            raise ValueError('[[weights.receiver]] gets no weights by bridge = "shared"; set bridge = "disk"')
        if self.bridge == "restart" if not self.command else self.bridge not in ("restart", "lora"):
            raise ValueError('bridge = "restart" and a command that restarts an engine belong together')
        if any(one.url == other.url for n, one in enumerate(self.receiver) for other in self.receiver[:n]):
            raise ValueError("two [[weights.receiver]] have the same url")
        if self.bridge in ("gloo", "tensor") and any(one.dialect != "vllm" for one in self.receiver):
            raise ValueError(f'bridge = "{self.bridge}" speaks dialect = "vllm" only; use bridge = "disk" for sglang')


REFUSED_FLAGS = {
    "--weight-transfer-config": "would allocate the weights anew, which the trainer writes to",
    "--enable-sleep-mode": "would free the weights, which the trainer writes to",
}
"""of vLLM's API server"""


def is_short_for(name: str, flag: str) -> bool:
    """True if argparse may take a name for this flag. It accepts beginnings, of which the shortest one that is no other
    flag has two words."""
    return flag.startswith(name) and name.count("-") > 2


class TrainerSection(TrainerSettings, frozen=True, forbid_unknown_fields=True):
    """The optimizer and its steps. Most keys are declared in `core.settings`; these concern only this machine."""

    gradient_checkpointing: Recompute = "auto"
    """compute layers again in the backward pass instead of keeping them: takes less memory and one more forward pass,
    and gives the same bits; auto: if a step of `max_tokens` with its anchors would not fit otherwise"""
    products: Products = "auto"
    """CPU only: dtype of bf16 matrix products; auto: float32 on a processor without instructions for bf16"""
    stall_s: Annotated[float, Meta(ge=0.0)] = 1800.0
    """seconds without a due answer after which the trainer is ended and replaced; 0: never"""

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
    near_duplicate: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.9
    """similarity to an accepted text (estimated share of common groups of three words) from which a text of 40 words or
    more is not learned; 0: only identical ones are left out. Also for watched directories"""
    review: str = "auto"
    """examples that wait for `apollod ctl example approve`: "hold" all, "sample:0.1" a tenth, "auto" none"""
    learn: Learn = "unrejected"
    """answers of session logs to learn: "unrejected", those without evidence against them in a log (a correction, an
    undo, a refusal, a failed check); "positive", of these only those with evidence for them; "all"; the others wait for
    a verdict or a person. Rows of data sets are learned as they are"""

    def __post_init__(self) -> None:
        review_share(self.review)


class WatchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory of agent logs and databases, with all below it; or one database."""

    path: str
    format: str = "auto"
    """format of its files, as named by `apollod ctl source test`; auto: by their content"""
    mode: Literal["auto", "tail", "poll"] = "auto"
    """tail: growing files, by notifications of the system; poll: databases, every `poll_s`; auto: both, as present"""
    models: tuple[str, ...] = ()
    """models whose answers are learned, others are context; default: the served model; "*": all"""
    strip: StripLevel = "memory"
    """parts removed from conversations before learning: memory (surfaced memories and reminders), system (also system
    prompts), all (also tools and what programs tell about themselves), none"""
    strip_patterns: tuple[str, ...] = ()
    """regular expressions whose matches are removed as well"""
    sidechains: bool = False
    """also learn the work of subagents"""
    tier: Literal["direct", "bulk"] = "bulk"
    """tier of its examples, which decides learning rate and order"""
    context_tokens: Annotated[int, Meta(ge=1)] = 4096
    """rough number of tokens of conversation before a learned answer, at most `[trainer] max_tokens`: earlier prompts
    are left out"""
    settle_s: Annotated[float, Meta(ge=1.0)] = 60.0
    """seconds without additions after which a conversation is taken as complete"""
    poll_s: Annotated[float, Meta(ge=0.1)] = 10.0
    """seconds between two scans of databases"""
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
    """redact e-mail addresses, telephone numbers, IBANs and numbers of payment cards as well, in texts read from then
    on"""


class CaptureSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Capture of the engine's own answers: prompt and tokens, by response id, without credentials."""

    mode: Literal["off", "feedback", "all"] = "off"
    """feedback: a rating finds the exact tokens of its answer; all: logs that name the response do, too"""
    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 256 << 20
    """disk space; the oldest answers are removed first"""
    keep_s: Annotated[float, Meta(gt=0.0)] = 86400.0
    """seconds after which answers are removed"""


class PreferencesSection(PreferenceSettings, frozen=True, forbid_unknown_fields=True):
    """How answers are learned that people preferred or rated: docs/rewards.md. Terms of the losses are those of
    `wire.comparisons`."""

    pairs: Literal["sft", "dpo"] = "sft"
    """of two answers to a prompt: sft: the better one is learned; dpo: the difference is"""
    ratings: Literal["sft", "kto"] = "sft"
    """sft: good answers are learned; kto: good and bad ones"""
    beta: Annotated[float, Meta(gt=0.0)] = 0.1
    """by how much the model may leave its reference: a smaller one allows more"""
    smoothing: Annotated[float, Meta(ge=0.0, lt=0.5)] = 0.0
    """for dpo: chance that a pair is the wrong way round"""
    sft: Annotated[float, Meta(ge=0.0)] = 0.0
    """for dpo: weight of the better answer's own loss, against both answers becoming less likely"""
    bad: Annotated[float, Meta(gt=0.0)] = 1.0
    """for kto: weight of bad answers; that of good ones is 1"""

    def rules(self) -> Preferences:
        """The same for readers of sources."""
        pair = PairTerms(beta=self.beta, smoothing=self.smoothing, sft=self.sft)
        good, bad = RatedTerms(beta=self.beta), RatedTerms(beta=self.beta, weight=self.bad)
        return Preferences(self.pairs, self.ratings, pair, good, bad)


class ControlSection(ControlSettings, frozen=True, forbid_unknown_fields=True):
    """Updates of the weights by outside trainers over HTTP: docs/control.md."""

    enabled: bool = False
    """serve the routes by which vLLM's and SGLang's clients update weights, for this daemon's user and who has a key"""
    directories: tuple[str, ...] = ()
    """from which weights may be read when a client names a directory; none: such requests are refused"""
    addresses: tuple[str, ...] = ()
    """addresses to which apollod may connect to receive weights, besides this machine's own"""
    receive_s: Annotated[float, Meta(gt=0.0)] = 300.0
    """longest wait for tensors that a client announced"""
    pause_s: Annotated[float, Meta(gt=0.0)] = 600.0
    """longest pause of generation by a client, after which requests go on"""
    moments: Literal["keep", "reset"] = "keep"
    """what becomes of the optimizer's moments when an update is written; reset: they begin anew"""
    listen: str = ""
    """an address of their own for these routes, such as "127.0.0.1:8001" or "unix:/run/apollod/control.sock", beside
    all others; empty: the engine's"""

    @property
    def address(self) -> ListenAddress | None:
        """Where the routes are served; None: at the engine's address, or nowhere."""
        return listen_address(self.listen) if self.enabled and self.listen else None

    def __post_init__(self) -> None:
        if self.listen:
            try:
                listen_address(self.listen)
            except ValueError as error:
                raise ValueError(f"listen = {error}") from error
        if self.lease_s <= self.receive_s:
            raise ValueError(
                f"lease_s = {self.lease_s:g} would end an update whose tensors are awaited for receive_s = "
                f"{self.receive_s:g}; set it higher"
            )


class ReviewSection(ReviewSettings, frozen=True, forbid_unknown_fields=True):
    """Examples that wait for a person."""

    alternate: bool = False
    """with a score, also record the model's answer without the stripped text"""


class QueueSection(QueueSettings, frozen=True, forbid_unknown_fields=True):
    """Order in which examples from files and logs are learned, and their longest wait."""


class EndpointSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model at another OpenAI-compatible endpoint, named by [judge], [dream] or an [[environment]]."""

    name: Annotated[str, Meta(pattern="^[a-z0-9_-]+$")]
    base_url: str
    """including /v1"""
    model: str
    """its name there"""
    api_key: str = ""
    """preferably a credential `endpoint.NAME.api_key`"""
    tokenizer: str = ""
    """directory with the tokenizer.json of that model; a teacher needs it"""

    def __post_init__(self) -> None:
        from apollod.adapters.llm.endpoint import Endpoint  # here for start-up time

        Endpoint(self.base_url, self.model, self.api_key)  # refuses what it cannot ask


class JudgeSection(JudgeSettings, frozen=True, forbid_unknown_fields=True):
    """A model that judges examples before they are learned. Most keys are declared in `core.settings`."""

    endpoint: str = ""
    """name of the [[endpoint]] that judges; empty: the served model judges itself"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 120.0
    """seconds for one request"""
    max_tokens: Annotated[int, Meta(ge=64)] = 2048
    """most tokens of one answer; with its question it has to fit the context of that endpoint"""
    cases: tuple[str, ...] = ()
    """files of your own cases with known verdicts, besides those that come with apollod"""

    def __post_init__(self) -> None:
        if self.votes > 1 and self.temperature == 0.0:
            raise ValueError(f"votes = {self.votes} at temperature = 0 are {self.votes} times the same; use one vote")


class ScheduleSection(ScheduleSettings, frozen=True, forbid_unknown_fields=True):
    """Learning hours of examples that are not urgent."""

    def __post_init__(self) -> None:
        zone_of(self.zone)
        if self.nightly:
            hours_of(self.nightly)
        elif self.dream == "night":
            raise ValueError('dream = "night" needs nightly, the hours in which dreams may begin')


class DreamSection(DreamSettings, frozen=True, forbid_unknown_fields=True):
    """Dreams: learning by practice. Most keys, and those of [[dream.pattern]], are declared in `core.settings`."""

    endpoint: str = ""
    """name of the [[endpoint]] that imagines scenarios; empty: the served model imagines them"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 120.0
    """seconds for one call; at our own engine multiplied by the number of parallel calls"""
    max_tokens: Annotated[int, Meta(ge=16)] = 1024
    """most tokens of a scenario"""
    answer_tokens: Annotated[int, Meta(ge=1)] = 1024
    """most tokens of an answer; one that is cut off is not learned, but tested by its text so far"""

    def __post_init__(self) -> None:
        if not self.surroundings or len(set(self.surroundings)) < len(self.surroundings):
            every = ", ".join(SURROUNDING_KINDS)
            raise ValueError(f'surroundings names each kind once, at least one of {every}; ["none"] is without any')
        names = [pattern.name for pattern in self.pattern]
        for pattern in self.pattern:
            if (problem := pattern_problem(pattern)) or names.count(pattern.name) > 1:
                raise ValueError(f"[[dream.pattern]] {pattern.name}: {problem or 'there are several of this name'}")


class QualitySection(QualitySettings, frozen=True, forbid_unknown_fields=True):
    """Probes that show if the model gets worse. Most keys are declared in `core.settings`."""

    probe: tuple[str, ...] = ()
    """files of your own probes, besides those that come with apollod: docs/formats.md"""
    levels: Annotated[int, Meta(ge=0, le=3)] = 3
    """highest level of difficulty of the probes that come with apollod; 1: the easy ones only; 0: none"""
    on_alarm: str | tuple[str, ...] = ""
    """receiver of notifications when an alarm is raised and settled: a URL (http or https), to which JSON is posted, or
    a command that reads it on standard input, such as ["/etc/apollod/alarm.sh"]; a text that is not a URL is a
    command"""

    @property
    def is_on(self) -> bool:
        """True if the model is measured regularly, or with the user's own probes. Then probes are not learned."""
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


class EnvironmentSection(EnvironmentSettings, frozen=True, forbid_unknown_fields=True):
    """A source of prompts that scores the model's answers, which learns from the scores. Further keys are declared in
    `core.settings`."""

    kind: Literal["python", "http", "atropos", "verifiers"] = "python"
    """python: an object in a process of its own; http: a service; atropos: a run-api, whose environments sample;
    verifiers: a taskset of that library in a process of its own, which runs whole rollouts"""
    entry: str = ""
    """for python: `package.module:name`, or `/path/to/file.py:name`; it has prompt(number) and score(number, answer).
    For verifiers: the id of a taskset, or `/path/to/taskset.py`"""
    python: str = ""
    """for python and verifiers: the interpreter that runs it; empty: the daemon's"""
    variables: tuple[str, ...] = ()
    """for python and verifiers: names of environment variables that it gets, such as the key of a judge"""
    settings: dict[str, Any] = {}
    """for verifiers: what its configuration has below [env], and `renderer`"""
    url: str = ""
    """for http: of the service, which answers /prompt and /score; for atropos: of the run-api"""
    api_key: str = ""
    """for http: sent as a bearer token, preferably a credential `environment.NAME.api_key`"""
    timeout_s: Annotated[float, Meta(gt=0.0)] = 60.0
    """seconds for a prompt, and for the score of an answer; for verifiers: for a rollout with its score"""
    max_tokens: Annotated[int, Meta(ge=1)] = 256
    """most tokens of an answer; fewer where a group of the longest would not fit [trainer] max_tokens"""
    temperature: Annotated[float, Meta(gt=0.0)] = 1.0
    thinking: Thinking = "off"
    """whether the model thinks before it answers; its thought is learned like the answer, and not scored"""
    objective: Literal["grpo", "gspo", "cispo", "dro", "importance_sampling", "distill"] = "grpo"
    """the loss; distill: to say what `teacher` would say at each token of the model's answers, whatever its score"""
    teacher: str = ""
    """for distill: name of the [[endpoint]] of a model with the same vocabulary"""
    terms: Terms = Terms()
    """of the loss, such as { mean = "token", high = 1.28 }: docs/rewards.md"""

    def __post_init__(self) -> None:
        missing = {"python": "entry", "http": "url", "atropos": "url", "verifiers": "entry"}[self.kind]
        if not getattr(self, missing):
            raise ValueError(f'[[environment]] {self.name}: kind = "{self.kind}" needs {missing}')
        if (self.objective == "distill") != bool(self.teacher):
            raise ValueError(f'[[environment]] {self.name}: objective = "distill" and teacher belong together')
        if self.teacher and self.kind not in ("python", "http"):
            raise ValueError(f'[[environment]] {self.name}: kind = "{self.kind}" samples by itself, and has no teacher')
        if self.teacher and self.temperature != 1.0:
            raise ValueError(f"[[environment]] {self.name}: a teacher is asked at temperature 1, so sample at 1")
        if self.terms.kl and self.objective != "grpo":
            raise ValueError(f'[[environment]] {self.name}: terms kl belongs to objective = "grpo"')


class CheckpointSection(CheckpointSettings, frozen=True, forbid_unknown_fields=True):
    """Checkpoints: when weights and optimizer go to disk. Most keys are declared in `core.settings`."""

    undo_bytes: NotNegative | Literal["auto"] = "auto"
    """host memory for undoing the last steps without a checkpoint; a step takes about a sixth of the weights, and the
    optimizer's state. auto: for 6 steps, at most half of the free memory, at least 1 GiB"""
    hook: tuple[str, ...] = ()
    """command to run after each checkpoint, such as ["/etc/apollod/offsite.sh"]; see contrib/hooks"""
    hook_timeout_s: Annotated[float, Meta(gt=0.0)] = 3600.0


class LogSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The daemon's own log, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Retired(NamedTuple):
    """A key that is no setting any more, but still accepted. `instead`: what applies now, for the warning. `moved`: key
    of an [[endpoint]] that takes its value; empty: the value has no effect."""

    instead: str
    moved: str = ""


_MOVED = ("base_url", "model", "api_key")
_ENDPOINT = "write an [[endpoint]] with name, base_url, model and api_key, and its name as endpoint of this section"

RETIRED = {
    "trainer.limiter_rule": Retired("it is envelope; steps of older journals are run again by the rule they recorded"),
    "trainer.cache_every": Retired("every step counts, as with 1; see cache"),
    "trainer.rescore_share": Retired("it is 0.1; rescore = 0 turns scoring off"),
    "inbox.rescan_s": Retired("notifications tell of new files, and every 5 s the inbox is scanned as well"),
    "review.divergence_share": Retired('it is 0.05; divergence = "off" turns scoring off'),
    "review.divergence_after": Retired('it is 32; divergence = "off" turns scoring off'),
    "judge.priority": Retired("our own engine serves users before the judge; an endpoint is sent no priority"),
    "quality.loss_margin": Retired("it is 0.1; kl_margin = 0 leaves alarms to pass rates"),
    "quality.entropy_margin": Retired("it is 0.5; kl_margin = 0 leaves alarms to pass rates"),
    "quality.length_margin": Retired("it is 1; kl_margin = 0 leaves alarms to pass rates"),
    "dream.answer_temperature": Retired("it is 0.7"),
    "checkpoint.keep_days": Retired("keep and keep_bytes bound the checkpoints"),
    **{f"{section}.{key}": Retired(_ENDPOINT, key) for section in ("judge", "dream") for key in _MOVED},
}
"""Keys of earlier versions, by their dotted names."""
