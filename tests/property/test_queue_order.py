"""The order of the queue: shares are kept while others wait, nothing is lost or learned twice, direct ones come first,
and a journal gives the same order again."""

import math
from collections import Counter, defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property.test_core_properties import finish, folded
from support.effort import draws
from support.world import SETTINGS, World, changed

from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.facts.intake.state import LOOKAHEAD, SPAN, IntakeState, Kin, Queue, Waiting, first, upcoming
from apollod.core.kernel.event import Recorded
from apollod.supervisor.requests.status_requests import queue_of

Name = tuple[str, str, str]
"""source, session and topic"""

NAMES = st.tuples(st.sampled_from("AAAB"), st.sampled_from(["", "s1", "s1", "s2"]), st.sampled_from(["", "tax", "sea"]))
SHARES = st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.8, 1.0])


def give(world: World, names: list[Name], first: int = 0, tier: ev.Tier = "bulk") -> dict[str, Name]:
    """Lines of these sources, in order; their examples."""
    given_: dict[str, Name] = {}
    for n, (source, session, topic) in enumerate(names, first):
        id_ = f"{tier[0]}{n}"
        origin = ev.Origin(session=session)
        line = inp.Line(number=n + 1, example=id_, record=b"{}", origin=origin, topic=topic)
        world.give(inp.LinesRead(inp.Batch(source, source, n, n + 1, (line,), tier=tier), frozenset()))
        given_[id_] = source, session, topic
    return given_


def learned(world: World) -> list[str]:
    return [one for e in world.of(ev.StepCompleted) for one in e.examples or (e.example,)]


def groups(name: Name) -> list[tuple[str, str]]:
    return [(kind, one) for kind, one in zip(("source", "session", "topic"), name, strict=True) if one]


def kept(order: list[Name], share: float) -> None:
    """Each one was allowed, or nobody within reach was, and then it is the one of which least was taken."""
    waiting, taken = sorted_by_arrival(order), list[Name]()
    for name in order:
        counts = Counter(group for one in taken[1 - SPAN :] for group in groups(one))
        most = max(1, math.ceil(share * (min(len(taken), SPAN - 1) + 1) - 1e-9))
        had = {one: max((counts[group] for group in groups(one)), default=0) for one in waiting if waiting[one]}
        if had[name] >= most:
            assert min(had.values()) >= most and had[name] == min(had.values()), (taken, name, had)
        waiting[name] -= 1
        taken.append(name)


def sorted_by_arrival(order: list[Name]) -> dict[Name, int]:
    return dict(Counter(order))


@draws(60, 600)
@given(st.lists(NAMES, max_size=40), SHARES)
@example([("A", "", "")] * 9 + [("B", "", "")], 0.1)
def test_shares_are_kept_while_others_wait_and_all_are_learned_once(names, share):
    world = World(changed(SETTINGS, share_max=share)).up()
    world.give(inp.TrainingPaused("t"))
    given_ = give(world, names)
    world.settle()  # all are tokenised
    world.give(inp.TrainingResumed("t"))
    world.settle()
    order = learned(world)
    assert sorted(order) == sorted(given_)
    kept([given_[one] for one in order], share)
    if share == 1.0:
        assert order == list(given_)
    by_kind = defaultdict(list)
    for one in order:
        by_kind[given_[one]].append(int(one[1:]))
    assert all(numbers == sorted(numbers) for numbers in by_kind.values()), "of one kind the first one comes first"


@draws(60, 600)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("lines"), st.lists(NAMES, min_size=1, max_size=4)),
            st.tuples(st.just("direct"), st.just([("ctl", "", "")])),
            st.tuples(st.sampled_from(["answer", "answer", "trainer dies", "crash", "pause", "resume"]), st.just([])),
        ),
        max_size=40,
    ),
    SHARES,
    st.integers(1, 3),
)
def test_whatever_dies_nothing_is_lost_or_learned_twice_and_the_journal_gives_the_same_order(moves, share, accumulate):
    world, serial = World(changed(SETTINGS, share_max=share, accumulate=accumulate)).up(), 0
    given_: dict[str, Name] = {}
    for move, names in moves:
        match move:
            case "lines" | "direct":
                given_ |= give(world, names, serial, "bulk" if move == "lines" else "direct")
                serial += len(names)
            case "answer":
                world.answer()
            case "trainer dies":
                world.exit("trainer")
                world.pass_time(70)
            case "crash":
                world = world.crash_and_return()
            case "pause":
                world.give(inp.TrainingPaused("t"))
            case "resume":
                world.give(inp.TrainingResumed("t"))
        if world.state.children.engine.phase == "spawned":
            world.engine_up()
    world = finish(world)
    assert sorted(learned(world)) == sorted(given_)
    assert folded(world).intake == world.state.intake
    check_direct_first(world.journal)


def check_direct_first(journal: list[Recorded]) -> None:
    """No bulk example begins while a direct one waits."""
    waiting: set[str] = set()
    for recorded in journal:
        match recorded.event:
            case ev.ExampleAccepted(example=one, tier="direct"):
                waiting.add(one)
            case ev.StepStarted(example=one, examples=several):
                began = set(several or (one,))
                assert began & waiting or not waiting
                waiting -= began


def test_one_source_alone_is_learned_in_order_and_never_waits_for_others():
    world = World(changed(SETTINGS, share_max=0.1)).up()
    given_ = give(world, [("A", "s", "t")] * 30)
    world.settle()
    assert learned(world) == list(given_)


def test_what_came_back_counts_as_what_it_was():
    """Held and approved, withdrawn and asked for again, expired and approved: its source is known still."""
    world = World(changed(SETTINGS, share_max=0.5, expire_days=1.0)).up()
    world.give(inp.TrainingPaused("t"))
    give(world, [("A", "s", "t")] * 3)
    world.give(inp.DecisionsGiven((inp.Decision("b0", "hold"),), "p"))
    world.give(inp.DecisionsGiven((inp.Decision("b0", "approve"),), "p"))
    world.give(inp.ExampleWithdrawn(("b1",), "p"))
    world.give(inp.RelearnRequested((("b1", "bulk"),), "p"))
    waiting = {one.example: one.kin for one in world.state.intake.bulk.waiting}
    assert waiting == dict.fromkeys(("b2", "b0", "b1"), Kin("A", "s", "t")) and not world.state.intake.away
    world.pass_time(86_401)
    assert [e.waiting for e in world.of(ev.ExampleExpired)] == [True] and not world.state.intake.bulk.waiting
    world.give(inp.DecisionsGiven((inp.Decision("b2", "approve"),), "p"))
    assert [one.kin for one in world.state.intake.bulk.waiting] == [Kin("A", "s", "t")]


@pytest.mark.parametrize(("days", "left"), [(0.0, ["b0", "b1", "d2"]), (2.0, ["b1", "d2"])])
def test_what_waits_too_long_is_given_up_unless_it_was_given_directly(days, left):
    world = World(changed(SETTINGS, expire_days=days)).up()
    world.give(inp.TrainingPaused("t"))
    give(world, [("A", "", "")])
    give(world, [("ctl", "", "")], 2, "direct")
    world.pass_time(86_400)
    give(world, [("A", "", "")], 1)
    world.pass_time(86_401)
    world.give(inp.TrainingResumed("t"))
    world.settle()
    assert sorted(learned(world)) == left
    assert world.state.review.dismissed.keys() == {"b0", "b1", "d2"} - set(left)
    assert folded(world).review == world.state.review


def full(count: int) -> IntakeState:
    """So many that wait, all of one source but the last one within reach."""
    kin = [Kin("B" if n == LOOKAHEAD - 1 else "A") for n in range(count)]
    intake = IntakeState(bulk=Queue())
    intake.bulk.waiting.extend(Waiting(f"e{n}", digest="d", kin=one) for n, one in enumerate(kin))
    intake.recent = [Kin("A")] * 3
    return intake


def test_a_choice_looks_no_further_than_it_may():
    assert first(full(LOOKAHEAD), 0.5).example == f"e{LOOKAHEAD - 1}"
    far = full(LOOKAHEAD)
    far.bulk.waiting.appendleft(Waiting("e", digest="d", kin=Kin("A")))
    assert first(far, 0.5).example == "e"

    class Counted(type(far.bulk.waiting)):
        seen = 0

        def __iter__(self):
            for one in super().__iter__():
                Counted.seen += 1
                yield one

    many = full(100_000)
    many.bulk.waiting = Counted(many.bulk.waiting)
    Counted.seen = 0
    assert first(many, 0.5) is not None and Counted.seen <= LOOKAHEAD + 1


@pytest.mark.parametrize("place", range(6))
def test_what_is_taken_from_anywhere_leaves_the_tail_without_tokens_as_it_is(place):
    queue = Queue()
    for n in range(6):
        queue.append(Waiting(f"e{n}"))
    for _ in range(3):
        queue.untokenised.popleft()
    assert queue.take(f"e{place}").example == f"e{place}" and queue.take(f"e{place}") is None
    left = [n for n in range(6) if n != place]
    assert [one.example for one in queue.waiting] == [f"e{n}" for n in left]
    assert [one.example for one in queue.untokenised] == [f"e{n}" for n in left if n > 2]


def test_what_is_shown_is_what_is_learned_then_and_says_why():
    world = World(changed(SETTINGS, share_max=0.5)).up()
    world.give(inp.TrainingPaused("t"))
    given_ = give(world, [("A", "s1", "tax"), ("A", "s1", ""), ("A", "s2", ""), ("B", "s3", "sea")])
    given_ |= give(world, [("ctl", "", "")], 9, "direct")
    world.settle()
    shown = queue_of(world.state, 3)
    assert [n["example"] for n in shown["next"]] == ["d9", "b0", "b3"] and "paused" in shown["blocked"]
    assert [n["why"] for n in shown["next"]] == [
        "given directly",
        "the order in which they came",
        "before 2 whose source and session has had its share",
    ]
    shown = queue_of(world.state, 20)
    world.give(inp.TrainingResumed("t"))
    world.settle()
    assert learned(world) == [n["example"] for n in shown["next"]] and len(given_) == 5
    after = queue_of(world.state, 20)
    assert (
        after["next"] == [] and after["blocked"] == "" and after["taken"]["source"][0] == {"name": "A", "examples": 3}
    )


def test_the_order_that_is_told_ahead_is_the_one_that_is_taken_example_by_example():
    intake = full(600)
    told = [pick.waiting.example for pick in upcoming(intake, 0.5)]
    taken = []
    while intake.bulk.waiting:
        one = intake.bulk.take(first(intake, 0.5).example)
        taken.append(one.example)
        intake.recent = [*intake.recent, one.kin][1 - SPAN :]
    assert told == taken
