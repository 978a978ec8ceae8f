"""The settings that decisions and steps depend on, each declared once.

The configuration's sections, the messages to the trainer and the journal all use these very types: a field that is
added here is a key of the TOML file, is recorded with every start, and reaches whoever needs it. What fixes the bits of
a step is a property of the field (`fixes_bits`). A bound is never tightened without a new version of `daemon.started`:
old journals hold what was allowed then.
"""

from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

FIXES_BITS = Meta(extra={"fixes_bits": True})
"""The result of a step depends on it, and the step does not record it: steps that are run again need the same value."""

OptimizerName = Literal["apollo", "adamw", "adafactor", "adamw8bit"]
ProductsDtype = Literal["bf16", "float32"]
"""What bf16 matrices are multiplied in on a CPU."""
Products = Literal["auto", "bf16", "float32"]
"""That, or the choice left to the processor. The bits of a step depend on it, so the trainer says what it took
(`Bound.products`)."""
Kernels = Literal["auto", "triton", "eager"]
"""Of the optimizer on a GPU. The bits of a step depend on them, so the trainer says what it took (`Bound.versions`)."""

Recompute = bool | Literal["auto"]
"""Layers are computed again in the backward pass; "auto" is decided by what fits"""
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
NotNegativeFloat = Annotated[float, Meta(ge=0.0)]


class OptimizerSettings(msgspec.Struct, frozen=True):
    """What a step depends on besides weights, example, number and learning rate."""

    name: Annotated[OptimizerName, FIXES_BITS] = msgspec.field(default="apollo", name="optimizer")
    rank: Annotated[Positive, FIXES_BITS] = 64
    """apollo: the smaller side of a matrix is projected to this; with rank = 1 and scale = "tensor" it is
    APOLLO-Mini"""
    scale: Annotated[Literal["channel", "tensor"], FIXES_BITS] = "channel"
    limiter: Annotated[NotNegativeFloat, FIXES_BITS] = 1.01
    """apollo: largest growth of an update's norm from one step to the next; 0: no limit"""
    limiter_rule: Annotated[Literal["envelope", "growth"], FIXES_BITS] = "envelope"
    """apollo: what `limiter` counts growth from. growth: the update before, as in the paper; envelope: that, but never
    less than 97 % of what it was, so that a nearly memorised example does not throttle the next ones. Steps recorded
    without it were made by growth"""
    moments: Annotated[Literal["float32", "bfloat16"], FIXES_BITS] = "float32"
    """apollo and adamw: how they are kept; bfloat16 takes half the memory and is rounded stochastically"""
    betas: Annotated[tuple[Share, Share], FIXES_BITS] = (0.9, 0.999)
    weight_decay: Annotated[NotNegativeFloat, FIXES_BITS] = 0.0
    layers: Annotated[str, FIXES_BITS] = ""
    """train these decoder layers only, such as "20-31" or "0-3,20-31"; empty: everything"""
    freeze: Annotated[tuple[str, ...], FIXES_BITS] = ()
    """patterns of Hugging Face names that are not trained, such as ["*.A_log", "lm_head.*"]"""
    rounding: Annotated[Literal["stochastic", "nearest", "master"], FIXES_BITS] = "stochastic"
    """of bf16 weights. nearest learns next to nothing at lr 1e-5; master keeps a float32 copy: 4 bytes a parameter
    more"""
    max_tokens: Annotated[int, Meta(ge=8), FIXES_BITS] = 4096
    """a longer example loses the left of its prompt"""
    seed: Annotated[NotNegative, FIXES_BITS] = 0
    loss_min: Annotated[NotNegativeFloat, FIXES_BITS] = 0.001
    """sft: a step with a lower loss writes nothing: what is known needs no update, and the optimizer would make one as
    large as any other out of the noise that its gradient is. 0: every step writes, as steps recorded without it did"""


class TrainerSettings(OptimizerSettings, frozen=True):
    """How examples become steps, and how steps reach requests."""

    lr: Annotated[float, Meta(gt=0.0)] = 1e-5
    """of what comes from files and logs"""
    lr_direct: NotNegativeFloat = 0.0
    """of what is given over HTTP or `ctl submit`; 0: 1e-4, or `lr` where that is higher"""
    warmup: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """share of a window's first examples over which the learning rate rises"""
    schedule: Literal["constant", "cosine"] = "constant"
    """of the learning rate after the warm-up"""
    lr_floor: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """cosine: share of the learning rate that it comes down to at the end of a window"""
    accumulate: Positive = 1
    """examples of one step, at most; more than 1 needs memory for a whole gradient, as much as the trained weights"""
    loss_max: NotNegativeFloat = 0.0
    """a step with a higher loss writes nothing; 0: no such limit"""
    loss_spike: NotNegativeFloat = 0.0
    """nor does one whose loss is higher than this many times the mean of its window; 0: no such limit"""
    publish: Literal["hogwild", "fenced"] = "hogwild"
    """hogwild: requests run while a step writes; fenced: they wait until it is written"""
    fence_max_s: Annotated[float, Meta(gt=0.0)] = 60.0
    """fenced: longest wait, after which requests go on whatever the trainer does"""
    cache: Literal["reset", "salt", "keep"] = "reset"
    """what becomes of prefixes cached with older weights: dropped, left to age out unseen, or used knowingly"""
    cache_every: Positive = 1
    """steps between two resets or salts; always at the end of a training window"""
    stop_s: NotNegativeFloat = 60.0
    """longest that a stop of the daemon waits for the running step, which is then abandoned and learned in the next
    life"""
    align_every: NotNegative = 100
    """steps between two comparisons of engine and trainer; 0: only when a trainer attaches"""
    align_max: NotNegativeFloat = 0.0
    """largest mean difference of log-probabilities; above it training halts. 0: by the kind of model and what this
    model showed before"""
    kernels: Kernels = "auto"
    """apollo on a GPU: triton; eager, which is plain torch; auto: triton where it can run. Bits depend on what that
    was, which `trainer.bound` records"""
    threads: NotNegative = 0
    """CPU only: cores of the trainer; 0 means what the engine leaves. Bits depend on how many that were, which
    `trainer.bound` records"""

    @property
    def direct_rate(self) -> float:
        """Learning rate of tier `direct`. Raising `lr` alone must not make direct corrections weaker than a file's
        lines."""
        return self.lr_direct or max(LR_DIRECT, self.lr)


LR_DIRECT = 1e-4


class CheckpointSettings(msgspec.Struct, frozen=True):
    """When weights and optimizer go to disk, and how long they stay."""

    delay_s: NotNegativeFloat = 600.0
    """seconds after the last step, whatever waits"""
    every_s: NotNegativeFloat = 600.0
    """while steps go on: seconds after the first one that is in no checkpoint, or after the checkpoint before it;
    0: only `replay_max` counts then"""
    keep_base: Literal["auto", "copy", "off"] = "auto"
    """the weights before the first step, in `base` of the state directory, for a replay from 0: reflink, else hard
    link, else copy; "copy" also where a link would do, against edits in place"""
    keep: Positive = 20
    """checkpoints that can be gone back to; the oldest goes first"""
    keep_bytes: NotNegative | Literal["auto"] = "auto"
    """of disk for all of them together; auto: half of what was free for them when the daemon started; 0: no limit"""
    keep_days: NotNegativeFloat = 0.0
    """older ones are removed; 0: no limit. The newest one always stays"""
    replay_max: Positive = 1000
    """write one anyway after this many steps: it bounds what a recovery has to run again"""


Divergence = Literal["off", "held", "all"]
"""Whose answers are scored with and without what was stripped."""


class ReviewSettings(msgspec.Struct, frozen=True):
    """What waits for a person."""

    hold_days: NotNegativeFloat = 30.0
    """an example about which nobody decided for so long is given up; 0: never"""
    divergence: Divergence = "held"
    """which examples of which text was stripped are scored with and without it: those that are held, all that wait, or
    none (off)"""
    divergence_after: NotNegative = 32
    """examples with a score that were learned and wait to be scored once more, at most; 0: none is"""
    forget_steps: NotNegative = 1000
    """what was learned in so many of the last steps is forgotten when it is taken back: the weights go back to before
    it, and the other steps are repeated; 0: nothing is, it is only named"""


class QueueSettings(msgspec.Struct, frozen=True):
    """In which order examples are learned that come from files and logs, and for how long they wait."""

    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """most of a window's examples that one source, one session or one topic may give while others wait; 1: they are
    learned in the order in which they came"""
    expire_days: NotNegativeFloat = 0.0
    """an example that waited for so long is given up; 0: never"""


JudgeMode = Literal["off", "flagged", "all"]


class JudgeSettings(msgspec.Struct, frozen=True):
    """Which examples a model judges before they are learned, and when it is trusted."""

    mode: JudgeMode = "off"
    """off: no judge; all: whatever came from files and logs, and waits for no person, waits for its verdict; flagged:
    of that, what has a signal"""
    model: str = ""
    """who judges; empty: the served model"""
    votes: Annotated[int, Meta(ge=1, le=15)] = 3
    """how often it is asked about an example; only what all votes say counts"""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.7
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 1
    """requests to it at one time"""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """so many without a verdict, and the example waits for a person"""
    trust_min: Annotated[float, Meta(gt=0.5, le=1.0)] = 0.8
    """what the lower bound of the agreement with planted cases and with people has to reach; below it every verdict
    waits for a person"""
    check_every: Positive = 20
    """verdicts between two planted cases that could show them wrong; fewer while little is known of the judge"""


DreamMode = Literal["idle", "always", "off"]


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """By what an answer is told to show a behaviour: at most one of these; with none of them the judge says so."""

    regex: str = ""
    """found in the answer"""
    schema: str = ""
    """file with a JSON schema that the answer follows"""
    command: tuple[str, ...] = ()
    """that exits 0 where it does, given {"messages", "answer"} as JSON on stdin"""
    rubric: str = ""
    """what the judge is told besides the instruction"""

    @property
    def by_code(self) -> bool:
        """Is no judge asked whether an answer passes?"""
        return bool(self.regex or self.schema or self.command)


class PatternSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A behaviour that is to be shown without being told."""

    name: str
    instruction: str
    """the text that should become unnecessary"""
    seeds: tuple[str, ...] = ()
    """what scenarios are imagined from: files, directories, views of the journal such as "view:signals"; none: the
    instruction alone"""
    check: Check = Check()
    contrast: tuple[str, ...] = ()
    """system messages under which the behaviour would be wrong; none: one that takes the instruction back"""
    objective: Literal["sft", "context"] = "sft"
    """how a good answer is learned: sft, its tokens; context, what the model says of each of them when it is told"""
    settle: tuple[Positive, Positive] = (4, 5)
    """so many of the last so many new scenarios have to show it untold"""
    held_out: Annotated[int, Meta(ge=1, le=200)] = 10
    """scenarios that are imagined before practice and only ever tested"""
    dreams: NotNegative = 200
    """practices after which it is given up; 0: no such limit"""
    tokens: NotNegative = 0
    """of all calls for it, after which it is given up; 0: no such limit"""
    days: NotNegativeFloat = 7.0
    """after which it is given up; 0: no such limit"""

    @property
    def contrasts(self) -> tuple[str, ...]:
        """`contrast`, or what stands for it."""
        return self.contrast or (f"{self.instruction}\n\n{TAKEN_BACK}",)


TAKEN_BACK = "This does not hold now: answer as if you had not been told so."


class DreamSettings(msgspec.Struct, frozen=True):
    """What is learned by practice, and when."""

    mode: DreamMode = "idle"
    """idle: while nobody else uses the engine; always: beside users, too; off: only when somebody asks for it"""
    idle_s: NotNegativeFloat = 60.0
    """so long nobody else used the engine before dreams begin"""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    """of the imagination"""
    answer_temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.7
    """of the answers that are learned; those of tests have none"""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """of one call, after which its dream is abandoned"""
    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.9
    """most of the last 200 learned examples that may have been dreamt; 1: all of them"""
    pattern: tuple[PatternSettings, ...] = ()
    """what is to be learned"""


class ScheduleSettings(msgspec.Struct, frozen=True):
    """When what is not urgent is learned."""

    nightly: str = ""
    """hours such as "02:00-05:00" in which what came from files and logs is learned, followed by a checkpoint; what is
    given directly is learned at once all the same. Empty: at any time"""
    zone: str = ""
    """of these hours, such as "Europe/Berlin"; empty: of this machine"""
    accumulate: NotNegative = 0
    """examples of one step in these hours, at most; 0: as in [trainer]"""


class QualitySettings(msgspec.Struct, frozen=True):
    """When the model is measured with probes, and how much worse it may be than before it learned."""

    every_steps: NotNegative = 0
    """steps between two looks; 0: only when somebody asks (`apollod ctl quality run`)"""
    margin: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.05
    """of probes, the share that may fail beyond those that failed at the baseline"""
    loss_margin: Annotated[float, Meta(gt=0.0)] = 0.1
    """by which the loss of probe texts may rise, in nats a token; of repetition, its share of what is said"""
    kl_margin: Annotated[float, Meta(ge=0.0)] = 1.0
    """by which the model may move from the baseline, in nats a token of probes and of its answers to them then; 0:
    measured, and no reason for an alarm, here and in the two below"""
    entropy_margin: Annotated[float, Meta(ge=0.0)] = 0.5
    """by which the entropy of what may stand in a place of these may fall, in nats"""
    length_margin: Annotated[float, Meta(ge=0.0)] = 1.0
    """by which answers may become longer or shorter: mean of the absolute natural logarithm of the ratio"""
    resume: Literal["auto", "manual"] = "auto"
    """after an alarm, when the last good weights are back: auto: steps go on; manual: a person says so"""
    culprits_max: NotNegative = 8
    """of a window that made it worse, the most examples that are looked for by replays; 0: none are"""
    replay_s: NotNegativeFloat = 0.0
    """that one of these replays may take; 0: ten times what its steps should, and a quarter of an hour"""
    cost: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.05
    """of the time of the steps between two looks, the share that the second may take: of the probes only some are
    asked then; 0: all are, however long that takes"""


class SignalsSettings(msgspec.Struct, frozen=True):
    """Evidence from logs about answers."""

    score: Literal["auto", "off"] = "auto"
    """auto: where no cue speaks, the served model is asked what the person's next words say of an answer, if it is
    right about cases whose answer is known; off: it is not"""


Practice = Literal["given", "told", "own"]


class LessonSettings(msgspec.Struct, frozen=True):
    """How lessons are taught, and what is held while steps are made."""

    hold: NotNegativeFloat = 1.0
    """how much each step, whatever it learns, minds what the model said before: weight of the mean divergence (KL, nats
    a token) from its frozen answers to a few prompts; 0: nothing is held"""
    hold_cost: NotNegativeFloat = 0.3
    """share of a step's tokens that those answers may have; one is held however short the step is"""
    practice: Practice = "given"
    """what a practice learns: given, the tokens of the given answer; told, what the told model says of each of them;
    own, what the told model says of its own answer"""
    steps: Positive = 24
    """practices of one course of a lesson, after which it is given up"""
    drift: NotNegativeFloat = 0.05
    """nats a token by which answers to anchors may move in one course, after which it is given up; 0: no such limit"""
    ask_again: tuple[str, ...] = ("1h", "1d", "1w", "30d")
    """how long after it was shown a known lesson is asked again, each time the next one, at the end always the last
    one: a number with s, min, h, d, w or steps, such as "1h", or "200 steps" of any examples. Empty: never"""


class Settings(msgspec.Struct, frozen=True):
    """What is recorded at every start, so that a fold knows it too."""

    model_path: str
    trainer: TrainerSettings = TrainerSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    review: ReviewSettings = ReviewSettings()
    queue: QueueSettings = QueueSettings()
    judge: JudgeSettings = JudgeSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    dream: DreamSettings = DreamSettings()
    quality: QualitySettings = QualitySettings()
    signals: SignalsSettings = SignalsSettings()
    lessons: LessonSettings = LessonSettings()
    checkpoint_hook: bool = False
    """is there a command to run after each"""
    on_alarm: bool = False
    """is there somebody to be told of the quality guard's alarms"""

    @property
    def optimizer(self) -> OptimizerSettings:
        """What a step depends on besides weights, example, number and learning rate."""
        return narrowed(self.trainer, OptimizerSettings)


StructT = TypeVar("StructT", bound=msgspec.Struct)


def narrowed(settings: StructT, kind: type[StructT]) -> StructT:
    """As much of some settings as their base class `kind` declares."""
    return kind(**{name: getattr(settings, name) for name in kind.__struct_fields__})


def _fixes_bits(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(part, Meta) and (part.extra or {}).get("fixes_bits") for part in get_args(hint)[1:]
    )


BITS_DEPEND_ON = tuple(
    name for name, hint in get_type_hints(OptimizerSettings, include_extras=True).items() if _fixes_bits(hint)
)
"""Settings that have to be the same where a step is run again."""


_KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(OptimizerSettings)}
"""Keys of [trainer] by the names of their fields."""


def differing_setting(then: Settings | None, now: Settings | None) -> str | None:
    """Key of [trainer] that the bits of a step depend on and that is not the same in both; None where all are."""
    if then is None or now is None:
        return None
    name = next((n for n in BITS_DEPEND_ON if getattr(then.trainer, n) != getattr(now.trainer, n)), None)
    return None if name is None else _KEYS[name]


def setting(settings: Settings, key: str) -> Any:
    """The value of a key of [trainer]."""
    return next(getattr(settings.trainer, name) for name, its_key in _KEYS.items() if its_key == key)
