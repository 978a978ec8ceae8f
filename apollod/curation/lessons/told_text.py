"""Writes the system message from which the model can answer a lesson."""

from apollod.core.lessons.wording import Given
from apollod.curation.lessons.asked_for import asked_for


def told(given: Given) -> str:
    """The system message of a lesson: the passage of the document, if it comes from one, the fact, a practised question
    for it, and the answer.

    It states the fact twice: with one statement, or only the order to answer with it, a model of 135M parameters
    answered fewer questions in other wordings.
    """
    return f"{told_section(given.section)}\n\n{_told_alone(given)}" if given.section else _told_alone(given)


def told_section(section: str) -> str:
    """The system message with a passage of a document."""
    return f"Text:\n{section}"


def _told_alone(given: Given) -> str:
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
