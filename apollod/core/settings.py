"""The settings that decisions and steps depend on, each declared once.

The configuration's sections, the messages to the trainer and the journal all use these very types: a field that is
added here is a key of the TOML file, is recorded with every start, and reaches whoever needs it. What fixes the bits of
a step is a property of the field (`fixes_bits`). A bound is never tightened without a new version of `daemon.started`:
old journals hold what was allowed then.
"""

from itertools import zip_longest
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from apollod.core.surroundings import SURROUNDING_KINDS, SurroundingKind

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
    """Settings that a step depends on besides weights, example, number and learning rate."""

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
    """Steps: how examples become steps, and how steps reach requests."""

    lr: Annotated[float, Meta(gt=0.0)] = 1e-5
    """of what comes from files and logs"""
    lr_direct: NotNegativeFloat = 0.0
    """of what is given over HTTP or `ctl submit`; 0: 1e-4, or `lr` where that is higher"""
    warmup: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """share of a window's first examples over which the learning rate rises"""
    warmup_steps: NotNegative = 8
    """steps from the untrained weights on over which it rises, too: moments that begin at zero make the first updates
    the largest ones"""
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
    rescore: NotNegative = 64
    """when nothing waits, so many of the lines that were learned last are scored again: how much better does the model
    say them? 0: none is"""
    rescore_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.1
    """of the time, at most, in which the trainer does that"""

    @property
    def direct_rate(self) -> float:
        """Learning rate of tier `direct`. Raising `lr` alone must not make direct corrections weaker than a file's
        lines."""
        return self.lr_direct or max(LR_DIRECT, self.lr)


LR_DIRECT = 1e-4


class CheckpointSettings(msgspec.Struct, frozen=True):
    """Checkpoints: when weights and optimizer go to disk, and how long they stay."""

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
    """Examples that wait for a person."""

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
    """The order in which examples from files and logs are learned, and for how long they wait."""

    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """most of a window's examples that one source, one session or one topic may give while others wait; 1: they are
    learned in the order in which they came"""
    expire_days: NotNegativeFloat = 0.0
    """an example that waited for so long is given up; 0: never"""


JudgeMode = Literal["off", "flagged", "all"]

Thinking = Literal["off", "on", "template"]
"""Does the served model think before it answers: `enable_thinking` of its chat template; template: as that has it"""


class JudgeSettings(msgspec.Struct, frozen=True):
    """Judging: which examples a model judges before they are learned, and when it is trusted."""

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
    thinking: Thinking = "template"
    """does the served model think before a verdict, if it judges; what it thinks is not read. template: as its chat
    template has it; on and off: `enable_thinking`"""
    check_every: Positive = 20
    """verdicts between two planted cases that could show them wrong; fewer while little is known of the judge"""


DreamMode = Literal["idle", "always", "off"]


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The check that tells whether an answer shows a behaviour: at most one of these; with none of them the judge
    decides."""

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
        """True if no judge is asked whether an answer passes."""
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
    """system messages under which the behaviour would be wrong; none: some that take the instruction back. One of three
    is only tested; a single one is practised and tested in several wordings"""
    objective: Literal["sft", "context"] = "sft"
    """how a good answer is learned: sft, its tokens; context, what the model says of each of them when it is told"""
    settle: tuple[Positive, Positive] = (4, 5)
    """so many of the last so many new scenarios have to show it untold"""
    held_out: Annotated[int, Meta(ge=1, le=200)] = 10
    """scenarios that are imagined before practice and only ever tested"""
    dreams: NotNegative = 400
    """practices after which it is given up; 0: no such limit"""
    tokens: NotNegative = 0
    """of all calls for it, after which it is given up; 0: no such limit"""
    days: NotNegativeFloat = 7.0
    """after which it is given up; 0: no such limit"""
    surroundings: tuple[SurroundingKind, ...] = ()
    """in which it is practised and tested; none: those of [dream]"""
    situations: Annotated[int, Meta(ge=0, le=200)] = 0
    """others in which the behaviour would be wrong although nobody says so, imagined and tested likewise; 0: none, for
    an imagination that cannot write such a thing"""

    @property
    def contrasts(self) -> tuple[str, ...]:
        """System messages that are practised in contrast."""
        return self._contrasts(False, FRAMES, TAKEN_BACK)

    @property
    def held_out_contrasts(self) -> tuple[str, ...]:
        """Those that no practice has: a behaviour that stays away under some wordings may show under others."""
        return self._contrasts(True, HELD_OUT_FRAMES, HELD_OUT_TAKEN_BACK)

    @property
    def tested_contrasts(self) -> tuple[str, ...]:
        """All of them, practised and held-out ones in turn, so that a few held-out scenarios meet both."""
        pairs = zip_longest(self.contrasts, self.held_out_contrasts)
        return tuple(text for pair in pairs for text in pair if text is not None)

    def _contrasts(self, held_out: bool, frames: tuple[str, ...], taken_back: tuple[str, ...]) -> tuple[str, ...]:
        given = self.contrast
        if len(given) > 1:
            last = min(2, len(given) - 1)
            return tuple(text for number, text in enumerate(given) if (number % 3 == last) is held_out)
        if given:
            return tuple(frame.format(given[0]) for frame in frames)
        return tuple(f"{self.instruction}\n\n{text}" for text in taken_back)


TAKEN_BACK = (
    "This does not hold now: answer as if you had not been told so.",
    "Disregard that in this conversation.",
    "The above does not apply here.",
)
HELD_OUT_TAKEN_BACK = ("Forget this instruction for now.", "That was said by mistake; do not act on it.")
FRAMES = ("{}", "In this conversation: {}", "{} This goes before everything else.")
HELD_OUT_FRAMES = ("Please note: {}", "{} Keep to that in all of your answers.")


class DreamSettings(msgspec.Struct, frozen=True):
    """Dreams: what is learned by practice, and when."""

    mode: DreamMode = "idle"
    """idle: while nobody else uses the engine; always: beside users, too; off: only when somebody asks for it"""
    idle_s: NotNegativeFloat = 60.0
    """so long nobody else used the engine before dreams begin"""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    """of the imagination"""
    answer_temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.7
    """of the answers that are learned; those of tests have none"""
    thinking: Thinking = "off"
    """does the served model think when it imagines and answers; thoughts are neither judged nor learned. on and off:
    `enable_thinking` of its chat template; template: as that has it"""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """of one call, after which its dream is abandoned"""
    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.9
    """most of the last 200 learned examples that may have been dreamt; 1: all of them"""
    surroundings: tuple[SurroundingKind, ...] = SURROUNDING_KINDS
    """what stands before the requests that are practised and tested, in turn: nothing, a neutral system message, an
    agent's with tools and earlier turns, and what stood there in a person's own records"""
    pattern: tuple[PatternSettings, ...] = ()
    """what is to be learned"""

    def surroundings_of(self, pattern: PatternSettings) -> tuple[SurroundingKind, ...]:
        """In which a pattern is practised and tested."""
        return pattern.surroundings or self.surroundings


class ScheduleSettings(msgspec.Struct, frozen=True):
    """Learning hours of examples that are not urgent."""

    nightly: str = ""
    """hours such as "02:00-05:00" in which what came from files and logs is learned, followed by a checkpoint; what is
    given directly is learned at once all the same. Empty: at any time"""
    zone: str = ""
    """of these hours, such as "Europe/Berlin"; empty: of this machine"""
    accumulate: NotNegative = 0
    """examples of one step in these hours, at most; 0: as in [trainer]"""
    catch_up: bool = True
    """what was missed of a night, since the daemon was off or paused, is made up for as soon as it is not"""
    dream: Literal["any", "night"] = "any"
    """night: dreams begin only in these hours, unless somebody asks for them"""


class QualitySettings(msgspec.Struct, frozen=True):
    """The quality guard: when the model is measured with probes, and the largest drop allowed."""

    every_steps: NotNegative = 50
    """steps between two looks, at least (see `cost`); 0: only when somebody asks (`apollod ctl quality run`)"""
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
    """of the time since the last look, the share that the next one may take: it asks some of the probes, and waits
    until that is paid for, at most 1,000 steps; 0: all are asked after `every_steps`, however long that takes"""


class SignalsSettings(msgspec.Struct, frozen=True):
    """Evidence from logs about answers."""

    score: Literal["auto", "off"] = "auto"
    """auto: where no cue speaks, the served model is asked what the person's next words say of an answer, if it is
    right about cases whose answer is known; off: it is not"""


Practice = Literal["given", "told", "own"]


class LessonSettings(msgspec.Struct, frozen=True):
    """Lessons: how they are taught, and what steps hold meanwhile."""

    hold: NotNegativeFloat = 3.0
    """how much each step, whatever it learns, minds what the model said before: weight of the mean divergence (KL, nats
    a token) from its frozen answers to a few prompts; 0: nothing is held"""
    hold_cost: NotNegativeFloat = 0.3
    """share of a step's tokens that those answers may have; one is held however short the step is, and eight while a
    lesson is practised"""
    practice: Practice = "given"
    """what a practice learns: given, the tokens of the given answer; told, what the told model says of each of them;
    own, what the told model says of its own answer"""
    thinking: Thinking = "off"
    """does the served model think when it is asked about a lesson; as in [dream]"""
    steps: Positive = 24
    """of one course of a lesson, after which it is given up; each learns all its practice wordings"""
    drift: NotNegativeFloat = 0.05
    """nats a token by which answers to anchors may move in one course, after which it is given up; 0: no such limit"""
    direct: bool = True
    """what is given directly is a lesson, too, if it is one question with a short answer"""
    nightly: bool = False
    """when the hours of `[schedule] nightly` begin, all known lessons are asked again"""
    ask_again: tuple[str, ...] = ("10 steps", "40 steps", "160 steps", "1d", "1w", "30d")
    """how long after it was shown a known lesson is asked again, each time the next one, at the end always the last
    one: a number with s, min, h, d, w or steps, such as "1h", or "200 steps" of any examples. Empty: never"""


class Settings(msgspec.Struct, frozen=True):
    """Settings recorded at every start, so that a fold knows them too."""

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
