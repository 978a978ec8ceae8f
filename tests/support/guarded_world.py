"""A world with a quality guard: probes are answered by how good the model is, which a test says of each step."""

from typing import Any

import msgspec
from support.world import SETTINGS, World

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.quality.looking import PART
from apollod.core.settings import QualitySettings

ITEMS = 40
STEP_S = 0.1
GUARDED = msgspec.structs.replace(SETTINGS, quality=QualitySettings(every_steps=3))


def guarded(**changes: Any) -> ev.Settings:
    return msgspec.structs.replace(GUARDED, quality=msgspec.structs.replace(GUARDED.quality, **changes))


class GuardedWorld(World):
    """`failing`: how many of the probes fail with the weights of a step on which an example was learned."""

    def __init__(self, settings: ev.Settings = GUARDED, dies_at: int = 0) -> None:
        super().__init__(settings, dies_at)
        self.probed: list[fx.MeasureQuality] = []
        self.poison: dict[str, int] = {}
        """how many more probes fail once this example is learned"""
        self.probes = "p"
        self.answers = True
        """probes are answered as soon as they are asked"""
        every = settings.quality.every_steps
        self.seconds = 0.99 * (1.0 - PART) * settings.quality.cost * STEP_S * every if every else 1e6
        """that a whole look takes: paid for by as many steps as are between two looks, and not by one less"""
        self.references = "r"
        self.more: dict[str, dict[str, float | None]] = {}
        """further figures"""
        self.left_out: dict[str, str] = {}
        self.replayed: list[fx.ReplayWindow] = []
        self.ended = 0
        """searches"""
        self.harmful_lr = 0.0
        """learning rate below which no example does harm"""
        self.lost_before = 0.0
        """of the probes, what had fallen before the window"""
        self.repeats = True
        """what an example does to the probes it does in replays, too"""
        self.no_replay = ""
        """why none can be run"""
        self.ranking: list[fx.RankExamples] = []
        self.no_ranking = ""
        """why there is none"""
        self.misleading: dict[str, float] = {}
        """scores of examples that say something else than what these do"""
        self.telling: list[fx.TellAlarm] = []
        """what somebody is being told, which lasts until `tells`"""
        self.begun_to_tell: list[tuple[int, str]] = []

    def _run(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.MeasureQuality):
            if effect not in self.probed:
                self.probed.append(effect)
            return []
        if isinstance(effect, fx.ReplayWindow):
            if effect not in self.replayed:
                self.replayed.append(effect)
            return []
        if isinstance(effect, fx.RankExamples):
            self.ranking.append(effect)
            return []
        if isinstance(effect, fx.EndSearch):
            self.ended += 1
            return []
        if isinstance(effect, fx.TellAlarm):
            if effect not in self.telling:
                self.telling.append(effect)
                self.begun_to_tell.append((effect.incident, effect.about))
            return []
        return super()._run(effect)

    def window(self, first: int, last: int) -> list[str]:
        """Examples of the steps that lead from one to the other."""
        done, found = {e.step: e for e in self.of(ev.StepCompleted)}, list[str]()
        while last > first:
            found = [*ev.all_examples(done[last]), *found]
            last = done[last].parent
        return found

    def replay(self) -> list[ev.Event]:
        """The oldest replay is run."""
        asked = self.replayed.pop(0)
        if self.no_replay:
            return self.give(inp.WindowReplayFailed(asked.incident, asked.number, self.no_replay))
        kept = [one for one in self.window(asked.first, asked.last) if one not in asked.left_out]
        rates = {one: e.lr for e in self.of(ev.StepStarted) for one in ev.all_examples(e) if not e.again_of}
        harmful = [one for one in kept if rates[one] * asked.lr_scale >= self.harmful_lr]
        failing = min(ITEMS, sum(self.poison.get(one, 0) for one in harmful)) if self.repeats else 0
        drops = dict.fromkeys(asked.items, failing / ITEMS + self.lost_before)
        return self.give(inp.WindowReplayed(asked.incident, asked.number, drops, len(kept), 1.0))

    def rank(self) -> list[ev.Event]:
        """The ranking that was asked for last is made, or cannot be."""
        asked = self.ranking.pop()
        if self.no_ranking:
            return self.give(inp.ExamplesRanked(asked.incident, asked.number, error=self.no_ranking))
        names = [one.example for one in asked.suspects]
        scores = {one: self.misleading.get(one, self.poison.get(one, 0) / ITEMS) for one in names}
        return self.give(inp.ExamplesRanked(asked.incident, asked.number, scores, seconds=2.0))

    def tells(self, error: str = "") -> list[ev.Event]:
        """The end of what is being told."""
        told = self.telling.pop(0)
        return self.give(inp.AlarmTold(told.incident, told.about, error))

    def learned(self, lr: float = 0.0) -> list[str]:
        """Examples that the weights have learned, at this rate or a higher one: of steps that were not taken back."""
        undone = {step for e in self.of(ev.RollbackStarted) for step in e.undone}
        return [
            one for e in self.of(ev.StepCompleted) if e.step not in undone and e.lr >= lr for one in ev.all_examples(e)
        ]

    def figures(self) -> dict[str, dict[str, float | None]]:
        learned = self.learned(self.harmful_lr) if self.harmful_lr else self.learned()
        failing = min(ITEMS, sum(self.poison.get(one, 0) for one in learned))
        return {"facts.passed": {f"i{n:02}": float(n >= failing) for n in range(ITEMS)}, **self.more}

    def look(self) -> list[ev.Event]:
        """The oldest question is answered."""
        asked, version = self.probed.pop(0), self.state.training.version
        taken, references = self.seconds * asked.share, self.references if asked.baseline else ""
        figures = self.figures()
        said = {id_: "right" if value else "wrong" for id_, value in figures.get("facts.passed", {}).items()}
        return self.give(
            inp.ProbesAnswered(
                asked.number,
                self.probes + "".join(f" {one.dream}:{one.text}" for one in asked.contrasts),
                figures,
                version,
                version,
                seconds=taken,
                references=references,
                left_out=self.left_out,
                contrasts=asked.contrasts if asked.baseline else (),
                answers=said,
            )
        )

    def exit(self, role: str, code: int = -9) -> None:
        self.ranking = [] if role == "trainer" else self.ranking
        super().exit(role, code)

    def alarm(self) -> None:
        """Up to an alarm: steps and looks, and nothing that it asks for."""
        while not self.of(ev.QualityAlarmed):
            super().settle()
            self.look()

    def named(self) -> None:
        """Replays, until examples are named."""
        while not self.of(ev.QualityNamed):
            self.replay()

    def unanswered(self) -> None:
        """All is done but what the guard asks."""
        super().settle()

    def probed_at(self, version: int) -> None:
        """The weights of this step are to be measured."""
        while not (self.probed and self.state.training.version == version):
            super().settle()
            if self.probed and self.state.training.version < version:
                self.look()

    def probes_fail(self, reason: str, cause: Any = "") -> None:
        """The newest question cannot be answered."""
        number = self.probed.pop().number
        self.give(inp.ProbesFailed(number, reason, cause) if cause else inp.ProbesFailed(number, reason))

    def probes_answered(self, first: int, last: int) -> None:
        """The newest question was answered by weights that were of one step and then of another one."""
        self.give(inp.ProbesAnswered(self.probed.pop().number, "p", self.figures(), first, last))

    def all_harm(self, count: int, failing: int) -> None:
        self.poison = {f"x{n}": failing for n in range(count)}

    def many_metrics(self, count: int) -> None:
        """That are well, whatever is learned."""
        self.more = {f"q{n}.passed": {f"i{m:02}": 1.0 for m in range(20)} for n in range(count)}

    def restored(self) -> None:
        """The weights are back to which an alarm goes, and were measured."""
        super().settle()
        while self.state.quality.unmeasured:
            self.look()
            super().settle()

    def settle(self) -> None:
        """Steps and looks until there is nothing left to do."""
        while True:
            super().settle()
            if not self.answers or not (self.probed or self.replayed or self.ranking):
                return
            if self.replayed:
                self.replay()
            elif self.ranking:
                self.rank()
            else:
                self.look()

    def successor(self, dies_at: int = 0) -> "GuardedWorld":
        other = super().successor(dies_at)
        assert isinstance(other, GuardedWorld)
        other.poison, other.probes, other.harmful_lr = self.poison, self.probes, self.harmful_lr
        return other

    def up(self) -> "GuardedWorld":
        super().up()
        return self
