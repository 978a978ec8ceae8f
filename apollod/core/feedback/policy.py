"""What follows from a rating, apart from examples (`intake.policy`).

Law: what was said last holds; saying the same again changes nothing.
"""

from apollod.core.feedback.events import FeedbackGiven
from apollod.core.feedback.inputs import Rated
from apollod.core.intake.events import Sampled
from apollod.core.kernel.outcome import Outcome, nothing
from apollod.core.kernel.policy import Handlers
from apollod.core.state import State


def _on_rated(state: State, input_: Rated, now_ns: int) -> Outcome:
    if not input_.is_news:
        return nothing()
    bad = input_.rating == "bad"
    event = FeedbackGiven(
        response=input_.response, rating=input_.rating, by=input_.by, correction=input_.correction,
        comment=input_.comment, example=input_.example, original=input_.original if bad else Sampled(),
        answer=input_.answer if bad else "", weights=input_.weights,
        replaces=input_.previous_seq if input_.previous else 0,
    )  # fmt: skip
    return Outcome([event], [])


HANDLERS: Handlers = {Rated: _on_rated}
