"""What the demo on the real model counts as right, as kept and as learned."""

from apollod.demo import corpus, real
from apollod.demo.real import Seen

RIGHT = [answer for _, answer in corpus.held_out_turns()]
GENERAL = ["Paris", *["I cannot say."] * (len(real.general()) - 1)]


def test_an_answer_is_right_if_it_names_the_fact_of_its_own_question() -> None:
    assert real.right(RIGHT) == [True] * 8
    assert real.right(["I was told: mara quill!", *RIGHT[1:]]) == [True] * 8
    assert real.right([RIGHT[-1], *RIGHT[:-1]]) == [False] * 8


def test_no_question_is_worded_as_an_example() -> None:
    taught = {question for question, _ in corpus.sample_turns()}
    assert len(real.corpus_questions()) == 8 and not taught & set(real.corpus_questions())


def test_learned_takes_right_answers_and_likelier_ones_and_what_was_lost_is_told() -> None:
    wrong = ["No idea."] * 8
    before, after = Seen(wrong, GENERAL, -2.0), Seen(RIGHT, ["Rome", *GENERAL[1:]], -0.1)
    told = real.figures(before, after)
    assert (told["learned"], told["right_before"], told["right_after"]) == (True, 0, 8)
    assert (told["general_before"], told["general_after"], told["general_questions"]) == (1, 0, len(GENERAL))
    assert not real.figures(before, after._replace(logprob=-1.6))["learned"], "by chance"
    assert not real.figures(before, after._replace(town=wrong))["learned"], "in no other wording"
