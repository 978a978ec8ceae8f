"""A world without processes: drives `decide` and `fold` the way the loop does, with children that answer like real
ones.

Weights are a number, a step adds its examples' hash to it: enough to see whether the right steps ran in the right
order. What an example is called decides its fate: one that begins with `long` cannot be tokenised, one with `huge` not
be learned for want of memory, which tears the weights; one with `large` neither, but that shows before anything is
written.
"""

import hashlib
import math
from collections import deque
from typing import Any, Literal, NamedTuple

import msgspec

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.facts.alignment import TOKENS, ModelKind
from apollod.core.facts.updates import OBJECTIVE
from apollod.core.fold import fold
from apollod.core.inputs import Batch, Line
from apollod.core.rules.forgetting import plan as forget_plan
from apollod.core.rules.intake.accepting import again_id, asked_about
from apollod.core.rules.rollback import NotRead, way_back
from apollod.core.schedules import SECOND_NS
from apollod.core.settings import CheckpointSettings, LessonSettings, ProductsDtype, QualitySettings, TrainerSettings
from apollod.core.state import State

SETTINGS = ev.Settings(
    model_path="/m",
    trainer=TrainerSettings(lr=1.0, warmup=0.0, warmup_steps=0, lr_direct=1e-4, rescore=0),
    checkpoint=CheckpointSettings(delay_s=600.0, keep=2, replay_max=1000),
    lessons=LessonSettings(hold=0.0),
    quality=QualitySettings(every_steps=0),
)
"""Nothing is held, scored again or measured: tests of that say so."""


def changed(settings: ev.Settings, **changes: Any) -> ev.Settings:
    """Some settings with others in it, whichever section they belong to."""
    replace = msgspec.structs.replace
    for section in (
        "trainer",
        "checkpoint",
        "review",
        "queue",
        "schedule",
        "judge",
        "quality",
        "signals",
        "lessons",
        "control",
    ):
        own = getattr(settings, section)
        mine = {name: changes.pop(name) for name in list(changes) if name in own.__struct_fields__}
        settings = replace(settings, **{section: replace(own, **mine)})
    return replace(settings, **changes)


FOR_ENGINE = fx.PauseEngine | fx.ResumeEngine | fx.ScoreProbe | fx.CompareWeights | fx.ScoreExample | fx.FreezeAnchor
ANSWERED_BY_US = fx.PauseEngine | fx.ScoreExample | fx.FreezeAnchor
"""also where the engine is gone: it is the supervisor that says so"""
OF_SUPERVISOR = (
    fx.StopChild
    | fx.RemoveCheckpoint
    | fx.ObserveCheckpoint
    | fx.PlanRollback
    | fx.PlanForget
    | fx.RunHook
    | fx.Exit
    | fx.RemoveUpdateFiles
    | fx.DropUpdateFiles
)


ANSWERS_MAX = 10_000
"""after so many a world will not come to rest"""


class Kept(NamedTuple):
    """A checkpoint's directory. `before`: the weights that the model directory held before; its delta leads from one
    side to the other. `full`: the weights are in it, too."""

    weights: str
    optimizer: str
    before: str
    full: bool = False


class Writing(NamedTuple):
    """What the trainer's writer still has to do, with the weights and the optimizer that it was handed."""

    asked: fx.WriteCheckpoint
    weights: str
    optimizer: str
    entered: bool = False


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Memory:
    """One memory file: an engine that is started again has another one, its old trainer still maps the old."""

    def __init__(self, weights: str) -> None:
        self.weights = weights


class Died(Exception):
    """The supervisor was killed, and its children with it."""


class World:
    """`give` feeds one input and everything that follows by itself; effects for the children pile up in `asked`.

    A life is a sequence of instants: after events are durable, before and after each effect, after something was put
    on disk and before anybody hears of it. At instant number `dies_at` it ends with `Died`.
    """

    def __init__(self, settings: ev.Settings = SETTINGS, dies_at: int = 0, free: int | None = None) -> None:
        self.no_references = ""
        """why the file of the baseline cannot be used"""
        self.settings, self.free = settings, free
        self.versions: dict[str, str] = {}
        """what the trainer runs on"""
        self.dies_at = dies_at
        self.instants = 0
        self.exited = False
        self.state = State()
        self.journal: list[ev.Recorded] = []
        self.given: list[tuple[int, inp.Input]] = []
        """every input, with the number of events before it"""
        self.seen: list[ev.Event | fx.Effect] = []
        """events and effects in their order; transcripts empty it"""
        self.asked: deque[fx.Effect | Writing] = deque()
        self.now = 1_000 * SECOND_NS
        self.known: set[str] = set()
        self.shared = self.view = Memory("base")
        self.optimizer = "fresh"
        self.disk: dict[str, Kept] = {}
        """checkpoints by path"""
        self.base_kept = False
        self.model_dir = ("", "base")
        """the checkpoint that the model directory holds, and its weights"""
        self.undoable: dict[str, str] = {}
        """fingerprint -> optimizer of the states that the trainer can go back to in memory"""
        self.anchors = ""
        """unable: the engine cannot say what it thinks of tokens; busy: it does not answer; long: none can be
        tokenised"""
        self.asks: dict[str, str] = {}
        """questions of prompts that ship, by name; the others have none"""
        self.keeps_steps = False
        self.hooked: list[int] = []
        self.hook_is_busy = False
        """with an earlier one: what is asked for meanwhile is asked for again"""
        self.pid = 100
        self.refreshed: list[int] = []
        self.products: ProductsDtype = "bf16"
        """what this machine's processor multiplies bf16 matrices in"""
        self.sizes: dict[str, int] = {}
        """tokens of examples, and of anchors by what they begin with; 10 of the others"""
        self.step_tokens = 0
        """for which the memory of this machine was planned"""
        self.elsewhere = False
        """the engine has a copy of its own, and is sent each version"""
        self.moved: dict[str, float] = {}
        """divergence by anchor; 0.0 of the others"""
        self.losses: dict[str, float] = {}
        """by example; 1.0 for the others"""
        self.after: dict[str, float] = {}
        """losses once it was learned, by example; 0.25 for the others"""
        self.forgotten: list[tuple[int, str]] = []
        self.fence = False
        self.requests = 0
        """that are being answered"""
        self.pauses: list[fx.PauseEngine] = []
        self.unfenced: list[fx.Effect] = []
        """writes of the trainer while the engine was not paused"""

    @property
    def memory(self) -> str:
        """What the engine serves."""
        return self.shared.weights

    @memory.setter
    def memory(self, weights: str) -> None:
        self.shared.weights = weights

    # --- the loop -------------------------------------------------------------------------------------------------

    def give(self, input_: inp.Input) -> list[ev.Event]:
        self.given.append((len(self.journal), input_))
        first = self._settle(input_)
        for _ in range(100):
            if not self._settle(inp.Advance()):
                return first
        raise AssertionError("Advance never comes to rest")

    def _settle(self, input_: inp.Input) -> list[ev.Event]:
        if isinstance(input_, inp.LinesRead):
            keys = {key: e.example for e in self.of(ev.ExampleAccepted) for key in e.responses}
            signals = frozenset(e.signal for e in self.of(ev.SignalFlagged))
            input_ = inp.LinesRead(
                input_.batch, frozenset(self.known), keys, flagged=signals, taught=self._taught(input_.batch, keys)
            )
        if isinstance(input_, inp.Rated):
            input_ = self._with_former(input_)
        events, effects = decide(self.state, input_, self.now)
        for event in events:
            recorded = ev.Recorded(len(self.journal) + 1, self.now, event)
            self.journal.append(recorded)
            self.seen.append(event)
            fold(self.state, recorded)
            if isinstance(event, ev.ExampleAccepted):
                self.known.add(event.example)
        if events:
            self._instant()
        out = list(events)
        for effect in effects:
            self._instant()
            self.seen.append(effect)
            out += self._run(effect)
        return out

    def record(self, event: ev.Event) -> None:
        """A fact that a decision would record, and what follows by itself."""
        recorded = ev.Recorded(len(self.journal) + 1, self.now, event)
        self.journal.append(recorded)
        self.seen.append(event)
        fold(self.state, recorded)
        self._instant()
        self.give(inp.Tick())

    def _taught(self, batch: Batch, keys: dict[str, str]) -> dict[str, inp.Taught]:
        """As the loop asks the journal."""
        tiers, found = {e.example: e.tier for e in self.of(ev.ExampleAccepted)}, {}
        for one in asked_about([(line, line.tier or batch.tier) for line in batch.lines], self.known, keys):
            newest, times = one, 1
            while (again := again_id(one, times)) in self.known:
                newest, times = again, times + 1
            found[one] = inp.Taught(newest, times, tiers.get(newest, "direct"))
        return found

    def _with_former(self, rated: inp.Rated) -> inp.Rated:
        """As the loop asks the journal."""
        key = inp.response_key(rated.response)
        said = [(r.seq, r.event) for r in self.journal if r.event.key() == rated.response and _is_rating(r.event)]
        learned = [e.example for e in self.of(ev.ExampleAccepted) if key in e.responses]
        seq, previous = said[-1] if said else (0, None)
        return msgspec.structs.replace(
            rated, previous=previous, previous_seq=seq, learned=learned[-1] if learned else None,
            formers=tuple(one.example for _, one in said),
            known=rated.line is not None and rated.line.example in self.known,
        )  # fmt: skip

    def _instant(self) -> None:
        """A moment at which a crash makes a difference."""
        self._check_ways()
        self.instants += 1
        if self.instants == self.dies_at:
            raise Died

    def reachable(self) -> set[str]:
        """Weights to which the deltas of committed checkpoints lead from the model directory, a full checkpoint or the
        base."""
        paths = {self.model_dir[0], *(c.path for c in self.state.checkpoints.committed)}
        history = [kept for path, kept in self.disk.items() if path in paths]
        ahead = [self.model_dir[1], *(kept.weights for kept in history if kept.full), *["base"] * self.base_kept]
        found: set[str] = set()
        while ahead:
            if (here := ahead.pop()) not in found:
                found.add(here)
                ahead += [kept.before for kept in history if kept.weights == here]
                ahead += [kept.weights for kept in history if kept.before == here]
        return found

    def _check_ways(self) -> None:
        """What `status` counts as kept can be gone back to, and so can what a recovery would start from."""
        origin, found = self.state.recovery.origin, self.reachable()
        assert (origin.fingerprint if origin else "base") in found, f"no way leads to {origin or 'the base'}"
        for one in self.state.checkpoints.committed:
            assert one.path in self.disk and one.fingerprint in found, f"no way leads to {one}"

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        self.pid += 1
        match effect:
            case fx.SpawnEngine(model_dir=model_dir):
                self.engine_dir = model_dir
                if model_dir != "/m":
                    reason = f"{model_dir} is no model directory"
                    return self._settle(inp.EngineExited(0, None, reason, refused=True))
                self.shared = Memory(self.model_dir[1])
                self.fence = False
                return self._settle(inp.EngineStarted(self.pid, model_dir))
            case fx.SpawnTrainer():
                self.optimizer, self.undoable = "lost", {}
                return self._settle(inp.TrainerStarted(self.pid))
            case fx.KeepBase(path=path):
                assert self.memory == "base" == self.shared.weights, "what is kept is not the base"
                self.base_kept = True
                return self._settle(inp.BaseKept(path, "reflink", 1, 0.1))
            case fx.RefreshEngine(version=version, forget=forget):
                self.refreshed.append(version)
                self.forgotten.append((version, forget))
            case fx.DropScore(number=number):
                self.asked = deque(e for e in self.asked if not (isinstance(e, fx.ScoreProbe) and e.number == number))
            case fx.RunHook() if self.hook_is_busy:
                pass
            case fx.FreezeAnchor() if effect in self.asked:
                pass  # one under way is not begun again
            case fx.ObserveCheckpoint() | fx.PlanRollback() | fx.PlanForget() | fx.RunHook() if effect in self.asked:
                pass  # it is being done
            case _:
                self.asked.append(effect)
        return []

    # --- children that answer -------------------------------------------------------------------------------------

    def start(self) -> None:
        self.give(
            inp.Started(1, "test", self.settings, "/s", free_bytes=self.free, references_problem=self.no_references)
        )

    def engine_up(self) -> None:
        self.give(
            ev.EngineReady(
                self.state.children.engine.pid,
                "http://e",
                "m",
                "disk" if self.elsewhere else "memfd",
                3,
                3,
                0,
                0,
                0,
                100,
                1.0,
                {},
                in_place=not self.elsewhere,
                outlives_engine=True,
                needs_pause=self.elsewhere,
                step_tokens=self.step_tokens,
            )
        )

    def answer(self) -> bool:
        """Let the trainer answer the oldest thing it was asked; False when there is none."""
        if not self.asked:
            return False
        asked = self.asked.popleft()
        writes = isinstance(asked, fx.RunStep) or (isinstance(asked, fx.Restore) and asked.weights)
        if writes and not self.fence and self.view is self.shared:
            self.unfenced.append(asked)
        match asked:
            case fx.PauseEngine() if self.state.children.engine.phase == "absent":
                self.give(inp.EnginePauseReport(asked, 0.0, "the engine is gone", gone=True))
            case fx.PauseEngine():
                self.pauses.append(asked)
                self.fence = True
                self.give(inp.EnginePauseReport(asked, 0.02))
            case fx.ResumeEngine():
                self.fence = False
                self.give(inp.EngineResumeReport(0.1, active=self.requests))
            case fx.ProbeTrainer(step=step, number=number, gives_way=True) if self._trainer_is_asked():
                self.give(inp.Probed(step, number=number, gave_way=True))
            case fx.ProbeTrainer(step=step, number=number, digests=True):
                self.give(inp.Probed(step, digests={"w": self.view.weights}, number=number))
            case fx.ProbeTrainer(step=step, number=number):
                self.give(inp.Probed(step, (1, 2), (-1.0,), seconds=0.01, number=number))
            case fx.ScoreProbe(step=step, number=number, trainer=trainer):
                self.give(inp.Scored(step, number, "ids", trainer, (-1.0 if self.view is self.shared else -2.0,), 0.1))
            case fx.ScoreExample(example=id_, after=after) if self.state.children.engine.phase != "ready":
                self.give(inp.ExampleScoreDone(id_, error="the engine is gone", retryable=True, after=after))
            case fx.ScoreExample(example=id_, after=after) if id_.startswith("odd"):
                self.give(inp.ExampleScoreDone(id_, error="too long", after=after))
            case fx.ScoreExample(example=id_, after=after):
                version = self.state.training.version
                self.give(inp.ExampleScoreDone(id_, -1.0, -3.0, 4, version, 0.1, after=after))
            case fx.FreezeAnchor() as freeze:
                self.freeze(freeze)
            case fx.EncodeAnchors(anchors=anchors):
                self.give(inp.EncodeDone([self.encoded(one) for one in anchors]))
            case fx.ScoreFollowUp(example=""):
                self.give(inp.CasesDone(tuple(ev.Known(2.0 * yes - 1.0, yes) for yes in (True, False) * 24)))
            case fx.ScoreFollowUp(example=id_) if "odd" in id_:
                self.give(inp.FollowUpDone(id_, error="it is no conversation"))
            case fx.ScoreFollowUp(example=id_):
                noted = [r.event for r in self.journal if isinstance(r.event, ev.FollowUpNoted)]
                self.give(inp.FollowUpDone(id_, next(one for one in noted if one.example == id_), 2.0))
            case fx.CompareWeights(step=step, number=number):
                self.give(
                    inp.Compared(step, {} if self.view is self.shared else {"w": "another memory"}, number=number)
                )
            case fx.AttachTrainer():
                self.view = self.shared
                self.give(inp.Bound(self.memory, 3, 50, self.versions, products=self.products))
            case fx.Restore(target=target, target_fingerprint=fingerprint) if (
                target >= 0 and fingerprint in self.undoable
            ):
                self.view.weights, self.optimizer = fingerprint, self.undoable[fingerprint]
                self.give(inp.Restored(self.view.weights, 10, undone=True))
            case fx.Restore(path=path, weights=weights, fingerprint=fingerprint):
                self.undoable = {}
                kept = self.disk[path] if path else Kept("base", "fresh", "")
                assert not weights or kept.weights in self.reachable(), f"no way leads to {path or 'the base'}"
                self.view.weights, self.optimizer = (kept.weights if weights else self.view.weights), kept.optimizer
                assert self.view.weights == fingerprint
                self.give(inp.Restored(self.view.weights, 10))
            case fx.EncodeExamples(examples=ids):
                self.give(inp.EncodeDone([self.encoded(i) for i in ids]))
            case fx.RunStep() as step:
                self.run_step(step)
            case fx.RescoreExamples() as rescore:
                self.rescore(rescore)
            case fx.WriteCheckpoint():
                self.asked.append(Writing(asked, self.view.weights, self.optimizer))
            case Writing(entered=False):
                before, full = self.model_dir[1], asked.asked.full
                self.disk[asked.asked.path] = Kept(asked.weights, asked.optimizer, before, full)
                self._instant()
                self.asked.append(asked._replace(entered=True))
            case Writing(fx.WriteCheckpoint(step=step, path=path), weights):
                self.model_dir = (path, weights)
                self._instant()
                self.give(inp.CheckpointWritten(step, path, weights, 10, 0.1, delta_bytes=5))
            case fx.ObserveCheckpoint(step=step, path=path):
                committed = self.model_dir[0] == path
                if not committed:
                    self.disk.pop(path, None)
                    self._instant()
                self.give(inp.CheckpointWritten(step, path, self.disk[path].weights if committed else "", 0, 0.0))
            case fx.PlanRollback(to=to, version=version, checkpoints=checkpoints):
                begun, done = ({e.step: e for e in self.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
                try:
                    plan = way_back(begun, done, lambda _: self.settings, self.bound_of, to, version, checkpoints)
                except NotRead as missing:
                    plan = inp.RollbackPlanned(to, version, error=f"there is no {missing} in the journal")
                self.give(plan)
            case fx.PlanForget(examples=wanted, version=version, most=most):
                begun, done = ({e.step: e for e in self.of(kind)} for kind in (ev.StepStarted, ev.StepCompleted))
                tiers = {e.example: e.tier for e in self.of(ev.ExampleAccepted)}
                begins = max((e.step for e in self.of(ev.JournalContinued)), default=0)
                found = forget_plan(
                    begun, done, lambda _: self.settings, self.bound_of, lambda _: tiers, wanted, version, most, begins
                )
                trained = {one for e in done.values() if e.applied for one in ev.all_examples(e)}
                absent = tuple(one for one in found.far if one not in trained)
                self.give(msgspec.structs.replace(found, absent=absent, far=tuple(set(found.far) - set(absent))))
            case fx.RemoveUpdateFiles(step=step):
                self.give(inp.UpdateFilesGone(step))
            case fx.RunHook(step=step, path=path):
                self.hooked.append(step)
                self.give(inp.HookCompleted(step, 0.1, path))
            case fx.StopChild(role=role):
                self.exit(role, 0)
            case fx.RemoveCheckpoint(path=path):
                self.disk.pop(path, None)
                self._instant()
            case fx.Exit():
                self.exited = True
        return True

    def late(self) -> None:
        """The engine takes its time over the comparison that it was asked for: whatever was asked later comes first."""
        scores = [asked for asked in self.asked if isinstance(asked, fx.ScoreProbe)]
        for score in scores:
            if score.patience_s is not None:
                self.give(inp.ScoreLate(score.number))
        self.asked = deque([asked for asked in self.asked if asked not in scores] + scores)

    def _trainer_is_asked(self) -> bool:
        return any(not isinstance(asked, OF_SUPERVISOR | FOR_ENGINE | Writing) for asked in self.asked)

    def scored(self, apart: float, kind: ModelKind = "dense", probe: str = "ids", settles: bool = True) -> None:
        """The engine answers the next comparison with this difference."""
        self.settle_until(fx.ScoreProbe)
        asked = self.asked.popleft()
        assert isinstance(asked, fx.ScoreProbe)
        self.give(inp.Scored(asked.step, asked.number, probe, (-1.0,), (-1.0 - apart,), 0.1, kind=kind))
        if settles:
            self.settle()

    def again(self, apart: float, probe: str = "ids") -> None:
        """One more step, and a difference in the whole comparison after it."""
        self.lines(f"one more {self.state.training.version}")
        self.settle_until(fx.ScoreProbe)
        while (under_way := self.state.alignment.open) is not None and under_way.tokens != TOKENS:
            self.answer()
            self.settle_until(fx.ScoreProbe)
        self.scored(apart, probe=probe)

    def unshared(self) -> None:
        """The trainer writes to a memory of its own."""
        self.view = Memory(self.view.weights)

    def encoded(self, example: str) -> inp.Encoded:
        if example.startswith("long"):
            return inp.Encoded(example, refused="too long")
        if example.startswith("update"):
            return inp.Encoded(example, 0, 0, 0, digest(example), objective=OBJECTIVE)
        tokens = next((size for begin, size in self.sizes.items() if example.startswith(begin)), 10)
        return inp.Encoded(example, tokens, 4, 0, digest(example))

    def freeze(self, asked: fx.FreezeAnchor) -> None:
        """The engine says what it thinks now, if it can."""
        if self.state.children.engine.phase != "ready" or self.anchors == "busy":
            return self.give_failure(asked, "busy")
        if self.anchors == "unable":
            return self.give_failure(asked, "unable")
        given = asked.prompt or asked.example
        sort = asked.sort if given else ("general", "neighbour")[int(asked.wanted[8:]) % 2]
        question = "" if given else self.asks.get(asked.wanted, "")
        if asked.wanted.startswith("neighbour:"):
            question = str(asked.prompt[0].content)
        anchor = f"{self.anchors}{asked.wanted} of {self.memory}"
        version = self.state.training.version
        said = inp.AnchorAnswered(asked.wanted, anchor, msgspec.Raw(b"{}"), "t", sort, version, version, 0.1, question)
        self.give(said)

    def give_failure(self, asked: fx.FreezeAnchor, cause: Literal["busy", "unable"]) -> None:
        self.give(inp.AnchorCallFailed(asked.wanted, cause, f"the engine is {cause}"))

    def run_step(self, step: fx.RunStep) -> None:
        if step.objective == OBJECTIVE:
            assert step.step not in {e.step for e in self.of(ev.UpdateFilesRemoved)}, "its tensors are gone"
        if any(example.startswith("huge") for example in step.examples):
            self.view.weights = "torn"
            self.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True))
            return self.exit("trainer", 70)
        if any(example.startswith("large") for example in step.examples):
            return self.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True, torn=False))
        if len(step.held) > 1 and step.examples[0].startswith("tight"):
            return self.give(inp.StepFailure(step.step, "out of memory", out_of_memory=True, torn=False))
        asked = step.step
        loss = sum(self.losses.get(example, 1.0) for example in step.examples) / len(step.examples)
        settings = self.state.daemon.settings
        known = settings is not None and loss < settings.trainer.loss_min
        applied = math.isfinite(loss) and not 0 < step.loss_limit < loss and not known
        if self.keeps_steps:
            self.undoable[self.view.weights] = self.optimizer
        if applied:
            number = step.again_of or step.step  # of its random numbers
            step = msgspec.structs.replace(step, products=step.products or self.products, step=number, again_of=0)
            said = f"{self.view.weights} {self.optimizer} {step}"
            self.view.weights = digest(said.replace(", replay=True", "").replace(", replay=False", ""))
            self.optimizer = digest(f"{self.optimizer} {step.examples} {step.step}")
        told, note = loss if math.isfinite(loss) else None, "" if applied else f"loss {loss}: nothing was written"
        done = inp.StepDone(
            asked,
            applied,
            told,
            1.0,
            1.0,
            10,
            4,
            self.view.weights,
            0.1,
            0,
            0,
            step.replay,
            note,
            known=known,
            held=tuple(self.moved.get(one, 0.0) for one in step.held) if applied else (),
            losses=tuple(self.losses.get(one, 1.0) for one in step.examples) if len(step.examples) > 1 else (),
        )
        self.give(done)

    def rescore(self, asked: fx.RescoreExamples) -> None:
        """The trainer gives way, or says what each is now."""
        gave_way = self._trainer_is_asked()
        said = [inp.ScoredAgain(one, self.after.get(one, 0.25), 4) for one in asked.examples if not gave_way]
        self.give(inp.ExamplesScored(asked.number, tuple(said), 0.1))

    def bound_of(self, step: int) -> ev.TrainerBound | None:
        """In force when a step was completed."""
        bound: ev.TrainerBound | None = None
        for recorded in self.journal:
            if isinstance(recorded.event, ev.TrainerBound):
                bound = recorded.event
            elif isinstance(recorded.event, ev.StepCompleted) and recorded.event.step == step:
                return bound
        raise AssertionError(step)

    def settle(self) -> None:
        for _ in range(ANSWERS_MAX):
            if not self.answer():
                return
        raise AssertionError("it never comes to rest")

    def settle_until(self, kind: type[fx.Effect]) -> None:
        """Until the next thing to answer is one of this kind."""
        for _ in range(ANSWERS_MAX):
            if isinstance(self.asked[0], kind):
                return
            self.answer()
        raise AssertionError(f"{kind.__name__} is never asked for")

    def repeating(self) -> None:
        """Until the first of the other steps is repeated."""
        while self.state.training.running is None or not self.state.training.running.begun.again_of:
            self.answer()

    def exit(self, role: str, code: int = -9) -> None:
        child = self.state.children.engine if role == "engine" else self.state.children.trainer
        if child.phase == "absent":
            return
        if role == "trainer":
            self.asked = deque(e for e in self.asked if isinstance(e, OF_SUPERVISOR | FOR_ENGINE))
        else:
            self.asked = deque(e for e in self.asked if isinstance(e, ANSWERED_BY_US) or not isinstance(e, FOR_ENGINE))
        exited = inp.EngineExited if role == "engine" else inp.TrainerExited
        self.give(exited(child.pid, code, f"exit code {code}"))

    def commit(self, example: str, label: str = "") -> None:
        """The outside trainer asks to write its update, as this example: `update...`; `long...` is refused."""
        line = Line(number=self.state.updates.last, example=example, record=b"{}")
        self.give(inp.UpdateCommitting(self.state.updates.last, line, label))

    def lines(
        self, *examples: str, source: str = "file", tier: ev.Tier = "bulk", hold: float = 0.0, stripped: bool = False
    ) -> None:
        removed = (ev.Removed(0, -1, "Be brief.", "system", "system"),) if stripped else ()
        lines = tuple(Line(number=i + 1, example=e, record=b"{}", removed=removed) for i, e in enumerate(examples))
        self.give(
            inp.LinesRead(Batch(source, f"/inbox/{source}", 10, len(lines), lines, tier=tier, hold=hold), frozenset())
        )

    def rate(self, response: str, rating: ev.Rating, correction: str = "", question: str = "") -> None:
        """Somebody rates an answer of the engine."""
        sampled = ev.Sampled(response, () if correction else (1, 2), (3,))
        answer = inp.Response(f"{response}{correction}", 0, sampled)
        line = Line(
            number=1, example=f"{correction or 'good'} {response}", record=b"{}", responses=(answer,), question=question
        )
        learned = line if correction or rating == "good" else None
        self.give(inp.Rated(response, rating, "t", correction, original=sampled, line=learned))

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_NS)
        self.give(inp.Tick())

    def up(self) -> "World":
        self.start()
        self.settle()  # what a checkpoint that was under way left
        self.engine_up()
        self.settle()
        return self

    def act(self, action: str) -> None:
        """An action that only some worlds know: nothing in the others, nor where it is not its time."""

    @property
    def as_if_never(self) -> str:
        """The weights, had what is not in them now never been learned: all steps as they first were, without it."""
        done, step, kept = {e.step: e for e in self.of(ev.StepCompleted)}, self.state.training.version, set[str]()
        while step:
            kept |= {*ev.all_examples(done[step])}
            step = done[step].parent
        bare = Bare()
        for e in self.of(ev.StepStarted):
            pairs = zip(ev.all_examples(e), e.digests or (e.digest,), strict=True)
            if not e.again_of and (left := [pair for pair in pairs if pair[0] in kept]):
                names, digests = zip(*left, strict=True)
                bare.run_step(msgspec.structs.replace(fx.RunStep.of(e), examples=names, digests=digests))
        return bare.memory

    def kinds(self) -> list[str]:
        return [r.event.kind for r in self.journal]

    def of(self, kind: type) -> list:
        return [r.event for r in self.journal if isinstance(r.event, kind)]

    def successor(self, dies_at: int = 0) -> "World":
        """The supervisor died with its children: another one on the same journal and disk, not started yet."""
        other = type(self)(self.settings, dies_at)
        other.versions, other.given = self.versions, self.given
        other.model_dir, other.base_kept, other.keeps_steps = self.model_dir, self.base_kept, self.keeps_steps
        other.journal, other.disk, other.known, other.now, other.pid = (
            self.journal,
            self.disk,
            self.known,
            self.now,
            self.pid,
        )
        for recorded in self.journal:
            fold(other.state, recorded)
        return other

    def crash_and_return(self) -> "World":
        return self.successor().up()


class Bare(World):
    """Only weights: whatever is told to it is told to nobody."""

    def give(self, input_: inp.Input) -> list[ev.Event]:
        return []


def _is_rating(event: ev.Event) -> bool:
    return isinstance(event, ev.FeedbackGiven)
