"""Whatever order decisions, steps, crashes and rollbacks come in: nothing is learned twice, nothing is learned against
what a person said last, and what a person wanted learned is."""

import json

from hypothesis import example, given
from hypothesis import strategies as st
from property.test_core_properties import ANY, EVERY, finish, play
from support.effort import draws
from support.world import SETTINGS, World

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.example_state import ExampleState, examples_of, rule_of, state_after
from apollod.wire.event_codec import encode_body

REACHED = ("held", "pending", "declined", "edited", "expired")
"""states in which a person still decides, unless the example is being learned"""
RATED = "its answer was rated"
"""why an example is approved or declined by a rating, which is what a person says, too"""
ENDED: tuple[ExampleState, ...] = ("trained", "skipped")


class Model:
    """What people want of each example, told by what they said and where the example was then; and nothing else. Who is
    no person (`judge`) wants nothing."""

    def __init__(self) -> None:
        self.wants: dict[str, bool | None] = {}
        """is it to be learned? None: nobody said anything"""
        self.states: dict[str, ExampleState | None] = {}
        self.running: set[str] = set()
        self.learned: dict[str, int] = {}
        """how many steps that were not taken back learned it"""
        self.to_forget: set[str] = set()
        """that are to be forgotten since nothing wanted them learned"""

    def says(self, said: inp.Input) -> None:
        """A person said something."""
        match said:
            case inp.DecisionsGiven(decisions=decisions) if said.by != "judge":
                wishes, late = dict[str, bool](), False
                for one in decisions:  # of several about one example the first counts
                    place = self.states.get(one.example)
                    if not self._within_reach(one.example) or one.only_in not in ("", place):
                        late = True
                        continue
                    if one.choice != "approve" or place != "edited":  # another one is learned instead
                        wishes.setdefault(one.example, one.choice == "approve")
                self.wants |= {} if late and said.together else wishes
            case inp.EditGiven(example=edited, line=line) if self._within_reach(edited):
                if self.states[edited] != "edited":
                    self.wants |= {edited: False, line.example: True}
            case inp.ExampleWithdrawn(examples=examples):
                waiting = [x for x in examples if self.states.get(x) == "pending" and x not in self.running]
                self.wants |= dict.fromkeys(waiting, False)
            case inp.RelearnRequested(examples=examples):
                out = [x for x, _ in examples if self.states.get(x) in ("undone", "withdrawn")]
                self.wants |= dict.fromkeys(out, True)

    def _within_reach(self, example_: str) -> bool:
        return self.states.get(example_) in REACHED and example_ not in self.running

    def happens(self, event: ev.Event) -> None:
        """Something was recorded."""
        match event:
            case ev.StepStarted():
                self.running = set(ev.all_examples(event))
                if event.again_of:  # nobody took it back: what was learned before it is forgotten
                    self.wants |= dict.fromkeys(self.running)
                against = [x for x in self.running if self.wants.get(x) is False]
                assert not against, f"step {event.step} learns {against}, against what a person said last"
            case ev.StepCompleted():
                self.running = set()
                for one in ev.all_examples(event):
                    self.learned[one] = self.learned.get(one, 0) + 1
                    assert self.learned[one] == 1, f"{one} is learned twice"
            case ev.StepFailed(apart=apart) if self.running:
                failed, self.running = self.running, set()
                self.wants |= {} if apart else dict.fromkeys(failed)  # it cannot be learned, whoever wants it
            case ev.ForgetRequested(examples=examples):
                self.to_forget |= set(examples)
            case ev.ExampleWithdrawn(examples=examples, by="apollod"):  # an update by an outside trainer has ended
                assert all(one.startswith(("update", "long")) for one in examples)
                self.wants |= dict.fromkeys(examples, False)
            case ev.ExampleWithdrawn(examples=examples):  # it waited again before the wish was carried out
                self.wants |= dict.fromkeys(self.to_forget.intersection(examples), False)
            case ev.ExampleAccepted(example=one, source="feedback"):
                self._wanted(one)
            case ev.ExampleApproved(example=one, reason=reason) if reason.startswith(RATED):
                self._wanted(one)
            case ev.ExampleDeclined(example=one, reason=reason) if reason.startswith(RATED):
                self.wants[one] = False
            case ev.ExampleRequeued(example=one):
                self._wanted(one)
            case ev.RollbackStarted(examples=examples):
                for one in examples:
                    self.learned[one] -= 1
                self.wants |= dict.fromkeys(examples, False)
        body = json.loads(encode_body(event))
        rule = rule_of(event.kind, body)
        for one in examples_of(body) if rule else ():
            self.states[one] = state_after(self.states.get(one), rule)

    def _wanted(self, example_: str) -> None:
        self.wants[example_] = True
        self.to_forget.discard(example_)


def modelled(world: World) -> Model:
    """Inputs and events in the order in which they came."""
    model, inputs = Model(), list(reversed(world.given))
    for place, recorded in enumerate(world.journal):
        while inputs and inputs[-1][0] <= place:
            model.says(inputs.pop()[1])
        model.happens(recorded.event)
    return model


DECISIONS = ["held lines", "approve", "decline", "hold", "edit", "two reviewers", "undo", "undo an edit"]
MANY = st.lists(st.one_of(ANY, st.sampled_from([*DECISIONS, "answer", "back", "supervisor dies"])), max_size=60)


@draws(120, 1500)
@example(["held lines", "two reviewers", "settle", "back", "approve", "settle"], SETTINGS)
@example(["pause", "lines", "settle", "decline", "undo", "resume", "settle"], SETTINGS)
@example(["praise", "given again", "given again", "answer", "back", "blame", "trainer dies"], SETTINGS)
@example(["update", "lines", "approve", "supervisor dies"], SETTINGS)
@given(MANY, EVERY)
def test_what_a_person_decided_last_wins_and_nothing_is_learned_twice(actions, training):
    world = play(actions, training)
    for _ in range(60):
        finish(world)
        if not (world.state.queued or world.state.rollback.wanted or world.state.rollback.under_way):
            break
    model = modelled(world)
    for one, wanted in model.wants.items():
        state = model.states.get(one)
        if wanted:
            assert state in ENDED or one.startswith("long"), f"{one} is {state}, and a person wants it learned"
        elif wanted is False:
            assert state not in (*ENDED, "pending"), f"{one} is {state}, against what a person said last"
