"""What a rating does to the queue and the journal; what was said last holds."""

import msgspec
import pytest

from apollod.core import effects as fx
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.decide import decide
from apollod.core.events import Sampled
from apollod.core.fold import fold
from apollod.core.inputs import Line, Response, response_key
from apollod.core.state import State

ORIGINAL = Sampled("r", (5, 6), (1, 2), 6)


def line(name: str, sampled: Sampled) -> Line:
    response = Response(f"k{name}", 0, sampled)
    return Line(1, name, b'{"completion":"%s","prompt":"p"}' % name.encode(), responses=(response,))


GOOD = inp.Rated("r", "good", "http", original=ORIGINAL, answer="said", weights="3", line=line("g", ORIGINAL))
FIXED = msgspec.structs.replace(
    GOOD, rating="bad", correction="better", line=line("c", Sampled("r", (), (1, 2), 6)), comment="no"
)  # fmt: skip
BAD = msgspec.structs.replace(GOOD, rating="bad", line=None)


class Story:
    """A core that is told ratings with what the journal would know of them."""

    def __init__(self) -> None:
        self.state = State()
        self.state.children.trainer.phase = "ready"
        self.given: tuple[int, ev.FeedbackGiven] | None = None
        self.formers: list[str] = []
        self.examples: set[str] = set()
        self.learned: dict[str, str] = {}

    def rate(self, rated: inp.Rated) -> list[ev.Event]:
        seq, previous = self.given or (0, None)
        known = rated.line is not None and rated.line.example in self.examples
        learned = self.learned.get(response_key("r"))
        return self.tell(
            msgspec.structs.replace(
                rated, previous=previous, previous_seq=seq, known=known, learned=learned, formers=tuple(self.formers)
            )
        )

    def tell(self, input_: inp.Input) -> list[ev.Event]:
        outcome = decide(self.state, input_, 0)
        for event in outcome.events:
            fold(self.state, ev.Recorded(self.state.seq + 1, 0, event))
            if isinstance(event, ev.FeedbackGiven):
                self.given = (self.state.seq, event)
                self.formers.append(event.example)
            elif isinstance(event, ev.ExampleAccepted):
                self.examples.add(event.example)
                self.learned |= dict.fromkeys(event.responses, event.example)
        self.effects = outcome.effects
        return outcome.events

    @property
    def waiting(self) -> list[tuple[str, str]]:
        return [(one.example, one.tier) for queue in self.state.intake.queues for one in queue.waiting]


def kinds(events: list[ev.Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_good_answer_is_an_example_of_its_tokens_at_once() -> None:
    story = Story()
    accepted, given = story.rate(GOOD)
    assert isinstance(accepted, ev.ExampleAccepted) and accepted.sampled == (ORIGINAL,)
    assert (accepted.tier, accepted.source, accepted.responses) == ("direct", "feedback", ("kg", response_key("r")))
    assert given == ev.FeedbackGiven(response="r", rating="good", by="http", example="g", weights="3")
    assert story.waiting == [("g", "direct")] and story.effects == [fx.EncodeExamples(("g",))]


def test_a_correction_is_learned_and_is_a_pair_with_what_was_said() -> None:
    accepted, given = Story().rate(FIXED)
    assert isinstance(accepted, ev.ExampleAccepted) and accepted.sampled == (Sampled("r", (), (1, 2), 6),)
    assert given == ev.FeedbackGiven(
        response="r", rating="bad", by="http", correction="better", comment="no", example="c", original=ORIGINAL,
        answer="said", weights="3",
    )  # fmt: skip


def test_a_bad_answer_is_only_recorded() -> None:
    story = Story()
    (given,) = story.rate(BAD)
    assert isinstance(given, ev.FeedbackGiven) and given.original == ORIGINAL and given.example == ""
    assert story.waiting == []


@pytest.mark.parametrize("rated", [GOOD, FIXED, BAD])
def test_the_same_again_is_nothing_new(rated: inp.Rated) -> None:
    story = Story()
    story.rate(rated)
    assert story.rate(rated) == [] and story.rate(msgspec.structs.replace(rated, by="ctl")) == []


def test_what_is_said_later_holds_and_what_it_replaces_no_longer_waits() -> None:
    story = Story()
    story.rate(GOOD)
    first = story.given
    assert kinds(story.rate(FIXED)) == ["example.declined", "example.accepted", "feedback.given"]
    assert story.waiting == [("c", "direct")]
    assert first and story.given and story.given[1].replaces == first[0]
    assert kinds(story.rate(GOOD)) == ["example.declined", "example.approved", "feedback.given"]
    assert story.waiting == [("g", "direct")]
    assert kinds(story.rate(BAD)) == ["example.declined", "feedback.given"] and story.waiting == []
    story.rate(GOOD)
    assert kinds(story.rate(msgspec.structs.replace(GOOD, comment="really"))) == ["feedback.given"]
    assert story.waiting == [("g", "direct")] and story.given[1].example == "g"


def from_a_log(story: Story) -> None:
    batch = inp.Batch("s", "/log", 9, 1, (line("l", ORIGINAL),))
    story.tell(inp.LinesRead(batch, frozenset()))
    assert story.waiting == [("l", "bulk")]


def test_an_answer_that_a_log_brought_is_not_learned_again() -> None:
    story = Story()
    from_a_log(story)
    assert kinds(story.rate(GOOD)) == ["feedback.given"] and story.waiting == [("l", "bulk")]
    assert story.given and story.given[1].example == "l"
    story.rate(msgspec.structs.replace(GOOD, comment="yes"))
    assert story.given[1].example == "l" and story.waiting == [("l", "bulk")]


def test_nor_one_that_somebody_called_bad() -> None:
    for rated, left in ((BAD, []), (FIXED, [("c", "direct")])):
        story = Story()
        from_a_log(story)
        assert kinds(story.rate(rated))[0] == "example.declined"
        assert story.waiting == left


def test_a_good_one_after_all_is_learned_where_it_came_from() -> None:
    story = Story()
    from_a_log(story)
    story.rate(BAD)
    assert kinds(story.rate(GOOD)) == ["example.approved", "feedback.given"] and story.waiting == [("l", "bulk")]


def test_a_log_that_comes_later_brings_nothing_new() -> None:
    story = Story()
    story.rate(GOOD)
    batch = inp.Batch("s", "/log", 9, 1, (line("l", ORIGINAL),))
    events = story.tell(inp.LinesRead(batch, frozenset(), responses=story.learned))
    assert kinds(events) == ["example.duplicate", "source.consumed"]


def test_an_example_that_waits_for_a_decision_is_decided_by_the_rating() -> None:
    for rated, state in ((GOOD, "approved"), (BAD, "declined")):
        story = Story()
        from_a_log(story)
        story.tell(inp.DecisionsGiven((inp.Decision("l", "hold"),), by="x"))
        assert story.waiting == []
        assert kinds(story.rate(rated)) == [f"example.{state}", "feedback.given"]
        assert story.waiting == ([("l", "bulk")] if rated is GOOD else [])


def test_what_was_withdrawn_comes_back_with_a_good_word() -> None:
    story = Story()
    story.rate(BAD)
    story.examples.add("g")
    story.learned[response_key("r")] = "g"
    story.state.intake.withdrawn["g"] = None
    assert kinds(story.rate(GOOD)) == ["example.requeued", "feedback.given"] and story.waiting == [("g", "direct")]
