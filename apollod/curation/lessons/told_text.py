"""What the model is told so that it can answer."""

from apollod.core.lessons.wording import Given
from apollod.curation.lessons.asked_for import asked_for


def told(given: Given) -> str:
    """The system message of a lesson: what is taught, a question for it that is practised, and what to say.

    Of the texts that were tried with a model of 135M parameters the one that let it answer most questions that others
    had worded (docs/benchmarks, wordings). Told once, or told how to answer, it answered fewer."""
    if not given.statement:
        question, answer = given.question.strip(), _ended(given.answer)
        return f'Fact: The answer to the question "{question}" is: {answer} Answer with this fact: {answer}'
    fact = _ended(given.statement)
    asked = asked_for(given.statement)[0]
    question, answer = (
        (given.question.strip(), given.answer) if given.question else ("".join(asked.practice[:1]), asked.says)
    )
    if not question:
        return f"Fact: {fact} Answer with this fact: {fact}"
    return f'Fact: {fact} If you are asked "{question}", answer: {_ended(answer)} Answer with this fact: {fact}'


def _ended(text: str) -> str:
    text = text.strip()
    return text if text[-1:] in tuple(".!?。！？") else f"{text}."
