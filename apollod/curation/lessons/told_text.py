"""What the model is told so that it can answer."""

from apollod.core.lessons.wording import Given


def told(given: Given) -> str:
    """The system message of a lesson."""
    if given.statement:
        return f"Fact: {given.statement} Answer with this fact."
    return f"Fact: the answer to the question {given.question} is: {given.answer} Answer with this fact."
