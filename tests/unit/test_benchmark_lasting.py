"""What `benchmarks.lasting` asks is nothing that a step could have held or learned."""

from apollod.core.facts.intake.events import Given
from apollod.curation.lessons.matching import key_of
from apollod.curation.lessons.worded import wordings
from apollod.supervisor.executor.holding_effects import shipped_prompts
from benchmarks.lasting.facts import corrected, facts
from benchmarks.lasting.measuring import GENERAL, UNRELATED


def test_no_question_of_the_benchmark_is_an_anchor() -> None:
    asked = {key_of(question) for question, _ in GENERAL} | {key_of(prompt) for prompt in UNRELATED}
    assert len(asked) == len(GENERAL) + len(UNRELATED)
    assert not asked & {key_of(one.prompt) for one in shipped_prompts()}


def test_no_wording_that_facts_are_asked_in_is_practised_or_decides() -> None:
    for fact in (*facts(), *corrected(facts())):
        worded = wordings(Given(question=fact.question, answer=fact.answer))
        asked = {key_of(one) for one in fact.asked}
        assert not asked & {key_of(one.prompt) for one in (*worded.practice, *worded.held_out)}
        assert fact.value in fact.answer and fact.value not in " ".join(fact.asked)
