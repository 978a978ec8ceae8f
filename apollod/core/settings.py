"""The settings that decisions and steps depend on, each declared once.

The configuration's sections, the messages to the trainer and the journal all use these very types: a field that is
added here is a key of the TOML file, is recorded with every start, and reaches every user of it. A field that fixes the
bits of a step is marked `fixes_bits`. A bound is never tightened without a new version of `daemon.started`: old
journals hold what was allowed then.
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
"""Dtype in which bf16 matrices are multiplied on a CPU."""
Products = Literal["auto", "bf16", "float32"]
"""The same, or "auto": chosen by the processor. The bits of a step depend on it, so the trainer reports its choice
(`Bound.products`)."""
Kernels = Literal["auto", "triton", "eager"]
"""Kernels of the optimizer on a GPU. The bits of a step depend on them, so the trainer reports its choice
(`Bound.versions`)."""

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
    """apollo: reference of the growth that `limiter` limits. growth: the norm of the update before, as in the paper;
    envelope: the same, but never less than 97 % of the reference before, so that a nearly memorised example does not
    throttle the next ones. Steps recorded without it used growth. Not a key of the configuration: only steps of older
    journals, run again, use growth"""
    moments: Annotated[Literal["float32", "bfloat16"], FIXES_BITS] = "float32"
    """apollo and adamw: dtype in which they are kept; bfloat16 takes half the memory and is rounded stochastically"""
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
    """sft: a step with a lower loss writes nothing: a known answer needs no update, and the optimizer would make a
    full-size one from the noise of its gradient. 0: every step writes, as steps recorded without it did"""


class TrainerSettings(OptimizerSettings, frozen=True):
    """Steps: how examples become steps, and how steps reach requests."""

    lr: Annotated[float, Meta(gt=0.0)] = 1e-5
    """learning rate of examples from files and logs"""
    lr_direct: NotNegativeFloat = 0.0
    """learning rate of examples given over HTTP or `ctl submit`; 0: 1e-4, or `lr` where that is higher"""
    warmup: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """share of a window's first examples over which the learning rate rises"""
    warmup_steps: NotNegative = 8
    """updates, counted from moments of zero, over which the learning rate rises as well: such moments make the first
    updates the largest ones"""
    schedule: Literal["constant", "cosine"] = "constant"
    """of the learning rate after the warm-up"""
    lr_floor: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.1
    """cosine: share of the learning rate that it comes down to at the end of a window"""
    accumulate: Positive = 1
    """examples of one step, at most; more than 1 needs memory for a whole gradient, as much as the trained weights"""
    loss_max: NotNegativeFloat = 0.0
    """a step with a higher loss writes nothing; 0: no such limit"""
    loss_spike: NotNegativeFloat = 0.0
    """a step whose loss is higher than this many times the mean of its window writes nothing; 0: no such limit"""
    publish: Literal["hogwild", "fenced"] = "hogwild"
    """hogwild: requests run while a step writes; fenced: they wait until it is written"""
    fence_max_s: Annotated[float, Meta(gt=0.0)] = 60.0
    """fenced: longest wait, after which requests go on whatever the trainer does"""
    cache: Literal["reset", "salt", "keep"] = "reset"
    """treatment of prefixes cached with older weights: dropped, left to age out unseen, or used knowingly"""
    stop_s: NotNegativeFloat = 60.0
    """longest wait of a stopping daemon for the running step, which is then abandoned and learned in the next life"""
    align_every: NotNegative = 100
    """steps between two comparisons of engine and trainer; 0: only when a trainer attaches"""
    align_max: NotNegativeFloat = 0.0
    """largest mean difference of log-probabilities; above it training halts. 0: from the kind of model and its earlier
    comparisons"""
    kernels: Kernels = "auto"
    """apollo on a GPU: triton; eager, which is plain torch; auto: triton where it can run. Bits depend on the choice,
    which `trainer.bound` records"""
    threads: NotNegative = 0
    """CPU only: cores of the trainer; 0: those the engine leaves. Bits depend on their number, which `trainer.bound`
    records"""
    rescore: NotNegative = 64
    """when nothing waits, score this many of the last learned lines again, to see how much more probable they became;
    0: none"""
    rescore_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.1
    """largest share of the time that the trainer spends on that. Not a key of the configuration: recorded for lives
    that had another one"""

    @property
    def direct_rate(self) -> float:
        """Learning rate of tier `direct`. Direct corrections stay at least as strong as a file's lines when only `lr`
        is raised."""
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
    """checkpoints kept for a rollback; the oldest is removed first"""
    keep_bytes: NotNegative | Literal["auto"] = "auto"
    """disk space for all of them together; auto: half of the space free for them when the daemon started; 0: no
    limit"""
    replay_max: Positive = 1000
    """write a checkpoint anyway after this many steps: bounds the steps that a recovery has to run again"""


Divergence = Literal["off", "held", "all"]
"""Examples whose answers are scored with and without the stripped text."""


class ReviewSettings(msgspec.Struct, frozen=True):
    """Examples that wait for a person."""

    hold_days: NotNegativeFloat = 30.0
    """a held example that was not decided for this long is given up; 0: never"""
    divergence: Divergence = "held"
    """examples with stripped text that are scored with and without it: held ones, all waiting ones, or none (off)"""
    divergence_after: NotNegative = 32
    """most learned examples with a score that wait to be scored once more; 0: none. Not a key of the configuration:
    recorded for lives that had another one"""
    forget_steps: NotNegative = 1000
    """examples learned in this many of the last steps are forgotten when they are taken back: the weights go back to
    before them, and the other steps are repeated; 0: they stay learned and are only named"""


class QueueSettings(msgspec.Struct, frozen=True):
    """Order in which examples from files and logs are learned, and their longest wait."""

    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """largest share of a window's examples from one source, one session or one topic while others wait; 1: learn in the
    order of arrival"""
    expire_days: NotNegativeFloat = 0.0
    """an example that waited this long is given up; 0: never"""


class PreferenceSettings(msgspec.Struct, frozen=True):
    """How answers are learned that people preferred or rated."""

    ratings_per_step: Positive = 8
    """for kto: rated answers of one step, which wait until so many are there; fewer where the memory of one step holds
    fewer"""


class ControlSettings(msgspec.Struct, frozen=True):
    """Updates of the weights by outside trainers."""

    durable: Literal["payload", "checkpoint", "none"] = "payload"
    """what a crash, a replay or a rollback has of an update once it is written. payload: its tensors stay in
    `<state>/updates`, as large as the model each; checkpoint: until a checkpoint holds them, which is written before
    the trainer is answered; none: nothing, and a crash goes back to the version before it"""
    lease_s: Annotated[float, Meta(gt=0.0)] = 600.0
    """longest silence of an outside trainer in an update, which then ends without a change"""


JudgeMode = Literal["off", "flagged", "all"]

Thinking = Literal["off", "on", "template"]
"""Thinking before an answer, by `enable_thinking` of the chat template; template: the template's default"""


class JudgeSettings(msgspec.Struct, frozen=True):
    """Judging: which examples a model judges before they are learned, and when it is trusted."""

    mode: JudgeMode = "off"
    """off: no judge; all: every example from files and logs that waits for no person waits for a verdict; flagged: only
    those with a signal"""
    votes: Annotated[int, Meta(ge=1, le=15)] = 3
    """requests per example; only a unanimous verdict counts"""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.7
    concurrency: Annotated[int, Meta(ge=1, le=64)] = 1
    """requests to the judge at one time"""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """attempts without a verdict after which the example waits for a person"""
    trust_min: Annotated[float, Meta(gt=0.5, le=1.0)] = 0.8
    """least lower bound of the agreement with planted cases and with people; below it every verdict waits for a
    person"""
    thinking: Thinking = "template"
    """whether the served model, as the judge, thinks before a verdict; its thoughts are not read. template: as in its
    chat template; on and off: `enable_thinking`"""
    check_every: Positive = 20
    """verdicts between two planted cases that could show them wrong; fewer while little is known of the judge"""


DreamMode = Literal["idle", "always", "off"]


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The check that tells whether an answer shows a behaviour: at most one of these; with none of them the judge
    decides."""

    regex: str = ""
    """pattern to find in the answer"""
    schema: str = ""
    """file with a JSON schema for the answer"""
    command: tuple[str, ...] = ()
    """command that exits 0 if the answer passes, given {"messages", "answer"} as JSON on stdin"""
    rubric: str = ""
    """text for the judge besides the instruction"""

    @property
    def by_code(self) -> bool:
        """True if no judge is asked whether an answer passes."""
        return bool(self.regex or self.schema or self.command)


class PatternSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A behaviour to learn, so that the model shows it without being told."""

    name: str
    instruction: str
    """the text that should become unnecessary"""
    seeds: tuple[str, ...] = ()
    """sources from which scenarios are imagined: files, directories, views of the journal such as "view:signals"; none:
    the instruction alone"""
    check: Check = Check()
    contrast: tuple[str, ...] = ()
    """system messages under which the behaviour would be wrong; none: some that take the instruction back. One of three
    is only tested; a single one is practised and tested in several wordings"""
    objective: Literal["sft", "context"] = "sft"
    """target of a good answer: sft, its tokens; context, the told model's distribution at each of them"""
    settle: tuple[Positive, Positive] = (4, 5)
    """(m, n): m of the last n new scenarios have to show the behaviour untold"""
    held_out: Annotated[int, Meta(ge=1, le=200)] = 10
    """scenarios imagined before practice and only used for tests"""
    dreams: NotNegative = 400
    """practices after which the pattern is given up; 0: no such limit"""
    tokens: NotNegative = 0
    """tokens of all its calls after which it is given up; 0: no such limit"""
    days: NotNegativeFloat = 7.0
    """days after which it is given up; 0: no such limit"""
    surroundings: tuple[SurroundingKind, ...] = ()
    """surroundings in which it is practised and tested; none: those of [dream]"""
    situations: Annotated[int, Meta(ge=0, le=200)] = 0
    """scenarios in which the behaviour is wrong although no message says so, imagined and tested likewise; 0: none, for
    an imagination that cannot write them"""

    @property
    def contrasts(self) -> tuple[str, ...]:
        """System messages that are practised in contrast."""
        return self._contrasts(False, FRAMES, TAKEN_BACK)

    @property
    def held_out_contrasts(self) -> tuple[str, ...]:
        """System messages in contrast that are only tested: a behaviour absent under some wordings may show under
        others."""
        return self._contrasts(True, HELD_OUT_FRAMES, HELD_OUT_TAKEN_BACK)

    @property
    def tested_contrasts(self) -> tuple[str, ...]:
        """All contrasts, practised and held-out ones in turn, so that a few held-out scenarios meet both."""
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
    """idle: while no user uses the engine; always: beside users, too; off: only on request"""
    idle_s: NotNegativeFloat = 60.0
    """seconds without other use of the engine before dreams begin"""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 1.0
    """sampling temperature of imagined scenarios"""
    thinking: Thinking = "off"
    """whether the served model thinks when it imagines and answers; thoughts are neither judged nor learned. on and
    off: `enable_thinking` of its chat template; template: the template's default"""
    attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """attempts of one call after which its dream is abandoned"""
    share_max: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.9
    """largest share of dreams among the last 200 learned examples; 1: no limit"""
    surroundings: tuple[SurroundingKind, ...] = SURROUNDING_KINDS
    """context before practised and tested requests, in turn: nothing, a neutral system message, an agent's with tools
    and earlier turns, and the context found in the user's own records"""
    pattern: tuple[PatternSettings, ...] = ()
    """patterns to learn"""

    def surroundings_of(self, pattern: PatternSettings) -> tuple[SurroundingKind, ...]:
        """Surroundings in which a pattern is practised and tested."""
        return pattern.surroundings or self.surroundings


class ScheduleSettings(msgspec.Struct, frozen=True):
    """Learning hours of examples that are not urgent."""

    nightly: str = ""
    """hours such as "02:00-05:00" in which examples from files and logs are learned, followed by a checkpoint; direct
    examples are still learned at once. Empty: at any time"""
    zone: str = ""
    """time zone of these hours, such as "Europe/Berlin"; empty: that of this machine"""
    accumulate: NotNegative = 0
    """most examples of one step in these hours; 0: as in [trainer]"""
    catch_up: bool = True
    """make up for a night missed because the daemon was off or paused, as soon as it runs again"""
    dream: Literal["any", "night"] = "any"
    """night: dreams begin only in these hours, unless a user requests them"""


class QualitySettings(msgspec.Struct, frozen=True):
    """The quality guard: when the model is measured with probes, and the largest drop allowed."""

    every_steps: NotNegative = 50
    """least number of steps between two looks (see `cost`); 0: only on request (`apollod ctl quality run`)"""
    margin: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.05
    """largest allowed drop of the pass rate below the baseline, as a share of the probes"""
    kl_margin: Annotated[float, Meta(ge=0.0)] = 1.0
    """largest allowed divergence from the baseline, nats a token of the probes and of its answers to them then; 0:
    measured without an alarm, and so are losses, entropy and lengths of answers"""
    resume: Literal["auto", "manual"] = "auto"
    """once the last good weights are back after an alarm: auto: steps go on; manual: a person resumes"""
    culprits_max: NotNegative = 8
    """most examples of a harmful window that replays search for; 0: no search"""
    replay_s: NotNegativeFloat = 0.0
    """longest time of one of these replays, seconds; 0: ten times the time its steps should take, and a quarter of an
    hour"""
    cost: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.05
    """largest share of the time since the last look that the next one may take: it asks a part of the probes and waits
    until the share allows it, at most 1,000 steps; 0: all are asked after `every_steps`, however long that takes"""


class SignalsSettings(msgspec.Struct, frozen=True):
    """Evidence from logs about answers."""

    score: Literal["auto", "off"] = "auto"
    """auto: where no cue decides, the served model is asked whether the user's next message rejects an answer, if it
    passes calibration on labelled cases; off: never"""


Practice = Literal["given", "told", "own"]


class LessonSettings(msgspec.Struct, frozen=True):
    """Lessons: how they are taught, and what steps hold meanwhile."""

    hold: NotNegativeFloat = 3.0
    """weight, in the loss of every step, of the mean divergence (KL, nats a token) from the model's frozen answers to a
    few prompts; 0: nothing is held"""
    hold_cost: NotNegativeFloat = 0.3
    """share of a step's tokens that those answers may have; one is held however short the step is, and ten while a
    lesson is practised"""
    practice: Practice = "given"
    """target of a practice: given, the tokens of the given answer; told, the told model's distribution at each of them;
    own, the told model's distribution over its own answer"""
    thinking: Thinking = "off"
    """whether the served model thinks when it is asked about a lesson; as in [dream]"""
    steps: Positive = 24
    """steps of one course of a lesson after which it is given up; each learns all its practice wordings"""
    drift: NotNegativeFloat = 0.05
    """divergence from the anchors in one course, nats a token, after which the lesson is given up; 0: no such limit"""
    direct: bool = True
    """turn a direct example into a lesson if it is one question with a short answer"""
    nightly: bool = False
    """when the hours of `[schedule] nightly` begin, all known lessons are asked again"""
    ask_again: tuple[str, ...] = ("10 steps", "40 steps", "160 steps", "1d", "1w", "30d")
    """delays after which a known lesson is asked again, each time the next one, at the end always the last one: a
    number with s, min, h, d, w or steps, such as "1h", or "200 steps" of any examples. Empty: never"""


class EnvironmentSettings(msgspec.Struct, frozen=True):
    """An environment, whose prompts the model answers and whose scores it learns from."""

    name: Annotated[str, Meta(pattern="^[a-z0-9_-]+$")]
    group: Annotated[int, Meta(ge=2, le=64)] = 8
    """answers to each prompt"""
    ahead: Annotated[int, Meta(ge=1, le=64)] = 2
    """groups that may wait to be learned"""
    age_max: NotNegative = 8
    """steps after which a group that waits is not learned any more; 0: no such limit"""
    lr: NotNegativeFloat = 0.0
    """learning rate of its steps; 0: that of [trainer]"""
    rails: NotNegative = 5
    """steps in a row with figures outside of their healthy range after which it is paused; 0: it is not"""


class Settings(msgspec.Struct, frozen=True):
    """Settings recorded at every start, so that a fold knows them too."""

    model_path: str
    trainer: TrainerSettings = TrainerSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    review: ReviewSettings = ReviewSettings()
    queue: QueueSettings = QueueSettings()
    preferences: PreferenceSettings = PreferenceSettings()
    control: ControlSettings = ControlSettings()
    judge: JudgeSettings = JudgeSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    dream: DreamSettings = DreamSettings()
    quality: QualitySettings = QualitySettings()
    signals: SignalsSettings = SignalsSettings()
    lessons: LessonSettings = LessonSettings()
    environment: tuple[EnvironmentSettings, ...] = ()
    checkpoint_hook: bool = False
    """a command runs after each checkpoint"""
    on_alarm: bool = False
    """alarms of the quality guard are reported to a command or address"""

    @property
    def optimizer(self) -> OptimizerSettings:
        """Settings that a step depends on besides weights, example, number and learning rate."""
        return narrowed(self.trainer, OptimizerSettings)

    def environment_named(self, name: str) -> EnvironmentSettings | None:
        """The environment of this name; None if it is not configured."""
        return next((one for one in self.environment if one.name == name), None)


StructT = TypeVar("StructT", bound=msgspec.Struct)


def narrowed(settings: StructT, kind: type[StructT]) -> StructT:
    """Copy of the fields that the base class `kind` declares."""
    return kind(**{name: getattr(settings, name) for name in kind.__struct_fields__})
