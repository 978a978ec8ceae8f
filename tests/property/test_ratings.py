"""Whatever is said of an answer, in any order, whoever decides and dies in between: what was said last holds."""

from hypothesis import example, given
from hypothesis import strategies as st
from property.test_core_properties import finish, folded, play
from support.effort import draws

from apollod.core import events as ev

ACTIONS = st.lists(
    st.sampled_from(
        ["praise", "blame", "correct", "praise", "blame", "correct", "answer", "answer", "trainer dies", "back",
         "supervisor dies", "approve", "decline", "hold", "withdraw", "relearn", "held lines", "pause", "resume"]
    ),
    max_size=50,
)  # fmt: skip


@draws(150, 600)
@given(ACTIONS)
@example(["praise", "blame", "answer"])
@example(["pause", "praise", "lines", "lines", "blame", "resume"])  # of the same answer
def test_nothing_that_a_person_said_no_to_is_learned_and_nothing_twice(actions: list[str]) -> None:
    world = finish(play(actions))
    wanted: dict[str, bool] = {}
    """by example: does what was said last of it, or of its answer, want it learned?"""
    refused: set[str] = set()
    """examples that what was said last does not want"""
    rated: dict[str, str] = {}
    for recorded in world.journal:
        match recorded.event:
            case ev.ExampleAccepted(example=one) | ev.ExampleApproved(example=one) | ev.ExampleRequeued(example=one):
                wanted[one] = True
                refused.discard(one)
            case ev.ExampleDeclined(example=one) | ev.ExampleHeld(example=one) | ev.ExampleEdited(example=one):
                wanted[one] = False
                refused.add(one)
            case ev.ExampleWithdrawn(examples=several):
                refused |= set(several)
            case ev.RollbackStarted(examples=several):
                wanted |= {one: True for one in several if one not in refused}
            case ev.FeedbackGiven(response=response, example=one):
                assert one == "" or one in wanted
                rated[response] = one
                others = {other for other in wanted if other.endswith(response) and other != one}
                wanted |= dict.fromkeys(others, False)
                refused = (refused | others) - {one}
            case ev.StepStarted() as begun:
                assert all(wanted[one] for one in ev.all_examples(begun))
            case ev.StepCompleted() as done:
                for one in ev.all_examples(done):
                    wanted[one] = False
            case ev.StepFailed() as failed:
                wanted[failed.example] = failed.apart
    said = [e for e in world.of(ev.FeedbackGiven) if not e.replaces]
    assert world.state.feedback.rated == len(said) == len(rated)
    waiting = {one.example for queue in world.state.intake.queues for one in queue.waiting}
    assert not waiting or world.state.daemon.paused
    assert folded(world) == world.state
