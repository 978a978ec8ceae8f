"""A judge under random orders of answers, failures, kills and people's decisions: nothing is learned that nobody may
have learned, or twice, and no kill asks more than once more."""

from collections import Counter, defaultdict

from hypothesis import example, given
from hypothesis import strategies as st
from property.test_core_properties import folded
from support.effort import draws
from support.judged_world import JUDGED, JudgedWorld, configured
from support.lives import goes_on
from support.world import changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.judging.events import Vote

VOTES = {
    "good": ("good", "good"), "bad": ("bad", "bad"), "split": ("good", "bad"), "unsure": ("unsure",),
}  # fmt: skip
SAID = [*VOTES, "better", "known better", "right", "right", "liar"]
FAILED = ["nonsense", "endpoint", "refused"]
REST = ["lines", "lines", "direct", "held lines", "answer", "settle", "kill", "other prompt", "time", "a month",
        "approve", "decline", "hold", "edit", "withdraw",
        "pause", "resume", "back", "relearn", "late answer"]  # fmt: skip
ACTION = st.tuples(st.sampled_from([*SAID, *SAID, *FAILED, *REST]), st.integers(0, 3))
SETTINGS = st.builds(
    changed, st.just(JUDGED), concurrency=st.integers(1, 3), attempts=st.integers(1, 3), check_every=st.integers(1, 4)
)


def answer(world: JudgedWorld, said: str, serial: int) -> None:
    """One question, whichever, is answered; planted ones mostly rightly, so that lives get beyond them."""
    if not world.questions:
        return
    asked = world.questions.pop(serial % len(world.questions))
    if asked.planted and said != "liar":
        votes = (
            (Vote(world.right(asked.subject)),)
            if said in ("right", "good", "better", "known better")
            else (Vote("unsure"),)
        )
    else:
        votes = tuple(Vote(one) for one in VOTES.get(said, ("bad",) if "better" in said else ("good",)))
    line = None
    if "better" in said:
        votes, line = (Vote("bad", better="b"),), inp.Line(number=1, example=f"{asked.subject}+", record=b"{}")
        if asked.planted:
            votes = (Vote(world.right(asked.subject)),)
    known = said == "known better" or (line is not None and line.example in world.known)
    world.give(inp.JudgeAnswered(asked.subject, asked.attempt, inp.Judged(votes), line, known))


def play(actions: list[tuple[str, int]], settings: ev.Settings, calm: bool) -> JudgedWorld:
    world, serial = JudgedWorld(settings), 0
    world.up()
    if calm:
        world.calibrate()
    for action, number in actions:
        serial += 1
        match action:
            case "nonsense" | "endpoint" | "refused" if world.questions:
                world.fails(action)
            case "lines" | "direct" | "held lines":
                tier, hold = ("direct" if action == "direct" else "bulk"), float(action == "held lines")
                world.lines(*(f"e{serial}.{n}" for n in range(3)), source=f"f{serial}", tier=tier, hold=hold)
            case "other prompt":
                world = world.successor()
                world.judge = configured(f"h{serial}")
                world.up()
            case "a month":
                world.pass_time(31 * 86_400)
            case "approve" | "decline" | "hold":
                out = [*world.state.review.held, *world.state.review.dismissed]
                out += [one.example for queue in world.state.intake.queues for one in queue.waiting]
                world.decides(action, *out[number::4])
            case "edit" if world.state.review.held:
                line = inp.Line(number=1, example=f"w{serial}", record=b"{}")
                world.give(inp.EditGiven(next(iter(world.state.review.held)), line, "p"))
            case "withdraw":
                waiting = [one.example for queue in world.state.intake.queues for one in queue.waiting]
                world.give(inp.ExampleWithdrawn(tuple(waiting[:number]), "p"))
            case "late answer" if world.of(ev.VerdictRequested):
                old = world.of(ev.VerdictRequested)[-1 - number % len(world.of(ev.VerdictRequested))]
                open_ = world.state.judging.open.get(old.key())
                if open_ is None or open_.attempt != old.attempt:  # else it is no late one
                    late = inp.JudgeAnswered(old.key(), old.attempt, inp.Judged((Vote("good"),)))
                    assert world.give(late) == []
            case said if said in SAID:
                answer(world, said, number)
            case _:
                world = goes_on(world, action, number)
                assert isinstance(world, JudgedWorld)
    world.give(inp.TrainingResumed("p"))
    world.settle()
    return world


class Audit:
    """Reads a journal from its first event to its last, knowing nothing of the code that wrote it."""

    def __init__(self, settings: ev.Settings) -> None:
        self.judge = settings.judge
        self.who: tuple[str, str] = ("", "")
        self.cases: dict[str, str] = {}
        self.never_asked: set[str] = set()
        self.hits: dict[str, list[bool]] = {"good": [], "bad": []}
        self.said: dict[str, str] = {}
        self.open: dict[str, int] = {}
        self.tried = Counter[str]()
        self.restarts = Counter[str]()
        self.may_learn: set[str] = set()
        self.by_person: set[str] = set()
        self.called_good: set[str] = set()
        self.out: set[str] = set()
        self.written: set[str] = set()
        self.trained = defaultdict[str, int](int)

    def trusted(self) -> bool:
        lower = [self.lower(kept[-100:]) if len(kept) >= 10 else 0.0 for kept in self.hits.values()]
        return not self.never_asked and sum(lower) / 2 >= self.judge.trust_min - 1e-9

    @staticmethod
    def lower(kept: list[bool]) -> float:
        """Solves (rate - p)^2 = z^2 p (1 - p) / n for the smaller p, with z of a one-sided 95 % bound."""
        n, rate, square = len(kept), sum(kept) / len(kept), 1.644854**2
        a, b, c = 1 + square / n, -(2 * rate + square / n), rate**2
        return float((-b - (b * b - 4 * a * c) ** 0.5) / (2 * a))

    def expected(self, case: str) -> str:
        return {"same": "good", "changed": "bad"}.get(case.partition(":")[0]) or self.cases[case]

    def person_says(self, example: str, found: str) -> None:
        self.by_person.add(example)
        if example in self.said:
            self.hits[found].append(self.said.pop(example) == found)

    def see(self, e: ev.Event) -> None:
        match e:
            case ev.JudgeConfigured():
                cases = {one.id: one.expected for one in e.cases}
                if (e.model, e.prompt_hash) != self.who:
                    self.hits, self.said, self.never_asked = {"good": [], "bad": []}, {}, set(cases)
                self.who, self.cases = (e.model, e.prompt_hash), cases
            case ev.JudgeDistrusted():
                assert self.who[0] and (self.trusted() or e.recalled or e.learned), "nothing to lose"
                self.hits, self.never_asked = {"good": [], "bad": []}, set(self.cases)
            case ev.VerdictRequested():
                assert e.key() not in self.open, "asked while it was being asked"
                self.open[e.key()] = e.attempt
                assert len(self.open) <= self.judge.concurrency
                self.tried[e.key()] += 1
                assert e.case or self.tried[e.key()] <= self.judge.attempts, "asked more often than that"
            case ev.VerdictGiven():
                assert self.open.pop(e.key()) == e.attempt
                if e.case:
                    self.never_asked.discard(e.case)
                    self.hits[e.expected].append(e.verdict == e.expected)
                else:
                    if e.verdict != "unsure":
                        self.said[e.example] = e.verdict
                    if set(e.votes) == {"good"}:
                        self.called_good.add(e.example)
                assert not e.into or e.example not in self.written, "a better answer was made better"
                self.written |= {e.into} - {""}
            case ev.VerdictFailed():
                assert self.open.pop(e.key()) == e.attempt
                self.restarts[e.key()] += e.cause == "restart"
                if e.case and e.gives_up:
                    self.never_asked.discard(e.case)
                    if e.cause == "nonsense":
                        self.hits[self.expected(e.case)].append(False)
            case ev.ExampleAccepted(tier="direct"):
                self.may_learn.add(e.example)
            case ev.ExampleApproved(by="judge"):
                assert e.example in self.called_good and self.trusted(), "approved by a judge that is not trusted"
                assert e.example not in self.by_person, "a person had decided"
                self.may_learn.add(e.example)
                self.out.discard(e.example)
            case ev.ExampleApproved():
                self.person_says(e.example, "good")
                self.may_learn.add(e.example)
                self.out.discard(e.example)
            case ev.ExampleDeclined(by="judge"):
                assert e.example not in self.by_person and self.trusted()
                self.out.add(e.example)
            case ev.ExampleDeclined() | ev.ExampleEdited():
                self.person_says(e.example, "bad")
                self.out.add(e.example)
            case ev.ExampleExpired():
                self.out |= set(e.examples)
                for one in e.examples:
                    self.said.pop(one, None)
            case ev.ExampleHeld():
                self.out.add(e.example)
                if e.by == "judge":
                    assert e.example not in self.by_person, "a person had decided"
                elif e.by:
                    self.by_person.add(e.example)
            case ev.StepStarted():
                for one in ev.all_examples(e):
                    self.said.pop(one, None)
            case ev.StepCompleted():
                for one in ev.all_examples(e):
                    assert one in self.may_learn and one not in self.out, "learned, and nobody approved"
                    self.trained[one] += 1
                    assert self.trained[one] == 1, "learned twice"
            case ev.RollbackStarted():
                for one in e.examples:
                    self.trained[one] -= 1


WITHDRAWN = [("lines", 0), ("endpoint", 0), ("bad", 0), ("good", 1), *[("bad", 0)] * 5, ("withdraw", 1), ("bad", 0)]
"""All that the judge approved is taken back before its agreement falls below what trust needs."""
TRUSTED = [("lines", 0), ("good", 0), ("better", 0), ("good", 0), ("good", 0), ("settle", 0)]


@draws(60, 3000)
@example([*TRUSTED, ("kill", 0), *TRUSTED, ("back", 1), ("relearn", 0), ("settle", 0)], JUDGED, True)
@example([("lines", 0), ("kill", 0), ("kill", 0), ("kill", 0), ("approve", 0), ("settle", 0)], JUDGED, True)
@example(WITHDRAWN, changed(JUDGED, attempts=1, check_every=1), True)
@given(st.one_of(st.lists(ACTION, max_size=15), st.lists(ACTION, min_size=15, max_size=80)), SETTINGS, st.booleans())
def test_nothing_is_learned_that_neither_a_person_nor_a_trusted_judge_let_through(actions, settings, calm):
    world = play(actions, settings, calm)
    audit, kills = Audit(settings), sum(action in ("kill", "other prompt") for action, _ in actions)
    for recorded in world.journal:
        audit.see(recorded.event)
    assert sum(audit.restarts.values()) <= kills * settings.judge.concurrency
    assert all(count <= kills for count in audit.restarts.values()), "a kill asked more than once more"
    assert {key: asked.attempt for key, asked in world.state.judging.open.items()} == audit.open
    assert folded(world) == world.state
    held = {one for one, held in world.state.review.held.items() if held.waits_for == "judge"}
    assert held == set(world.state.judging.waiting)
    own = world.state.judging
    made = {sort + one for one in own.reviewed for sort in ("same:", "changed:")}
    assert set(own.attempts) <= set(own.waiting) | set(own.cases) | set(own.open) | made


def test_the_lives_above_get_as_far_as_trust_and_beyond():
    """What the property looks at happens: approved and declined by the judge, and made better."""
    world = play([*TRUSTED, *TRUSTED], JUDGED, True)
    kinds = {(e.kind, e.by) for kind in (ev.ExampleApproved, ev.ExampleDeclined) for e in world.of(kind)}
    assert {("example.approved", "judge"), ("example.declined", "judge")} <= kinds
    assert any(e.source.startswith("judge:") for e in world.of(ev.ExampleAccepted)) and world.of(ev.StepCompleted)
