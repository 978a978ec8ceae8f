"""What the model is told so that it can answer."""

from apollod.core.lessons.wording import Given


def told(given: Given) -> str:
    """The system message of a lesson: what is taught, and once more as what to say.

    A model of 135M parameters that is told it twice answers more of the held-out wordings than one that is told once,
    and more than one that is told how to answer (docs/benchmarks, wordings)."""
    if given.statement:
        fact = _ended(given.statement)
        return f"Fact: {fact} Answer with this fact: {fact}"
    answer = _ended(given.answer)
    return f'Fact: The answer to the question "{given.question.strip()}" is: {answer} Answer with this fact: {answer}'


def _ended(text: str) -> str:
    text = text.strip()
    return text if text[-1:] in tuple(".!?。！？") else f"{text}."
