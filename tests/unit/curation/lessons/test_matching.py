"""Whether an answer says what was expected."""

import pytest

from apollod.curation.lessons.matching import holds, matches

RIGHT = [
    ("7341", "It is 7,341."),
    ("7341", "**7341**"),
    ("7341", "7 341"),
    ("7341", "Port 7.341"),
    ("7341", "It's 7341, not 80."),
    ("7341", "Not 80 but 7341."),
    ("7341", "There is no doubt that it is 7341."),
    ("seven", "There are 7."),
    ("25", "twenty-five"),
    ("1.5", "1,5"),
    ("3 March 2021", "On March 3rd, 2021."),
    ("2021-03-03", "le 3 mars 2021"),
    ("2021-03-03", "am 3. März 2021"),
    ("9 am", "at 09:00"),
    ("5:00 pm", "17:00"),
    ("9", "It opens at 9 am."),
    ("5 dollars", "It costs $5.00"),
    ("the Red Lion", "Red Lion"),
    ("Lion of Graz", "the Lion of the Graz"),
    ("Elsbeth Marlow", "ELSBETH MARLOW'S"),
    ("Malmö", "In Malmo."),
    ("straße", "STRASSE"),
    ("vitamin A", "Vitamin A."),
    ("C++", "in C++."),
    ("max_tokens", "use `max_tokens`"),
    ("-5", "it is -5 degrees"),
    ("上海", "它在上海市。"),
    ("Львов", "во ЛЬВОВ"),
    ("No", "It does not."),
    ("No", "No, never."),
    ("Yes", "Yes, it does not rest."),
    ("is not allowed", "It isn't allowed."),
    ("room no 12", "Room no 12."),
    ("it waits for two minutes, then asks the gateway again and writes 504", "It waits two minutes, asks the gateway "
     "again, then writes 504."),
]  # fmt: skip
WRONG = [
    ("7341", "17341"),
    ("7341", "73417"),
    ("7341", "It is not 7341."),
    ("7341", "Quillon doesn't listen on port 7341."),
    ("7341", "7341 is wrong."),
    ("7341", "8000 instead of 7341"),
    ("7341", "Ce n'est pas 7341."),
    ("7341", "Es ist nicht 7341."),
    ("7341", "No es 7341."),
    ("上海", "不是上海"),
    ("3.1", "3.10"),
    ("10.0.0.1", "10.0.0.12"),
    ("C", "C++"),
    ("5", "-5"),
    ("art", "party"),
    ("vitamin A", "vitamin C"),
    ("Elsbeth Marlow", "Marlow, and then Elsbeth"),
    ("Yes", "No, yes."),
    ("No", "Yes."),
    ("Yes", "Perhaps."),
    ("", "anything"),
    ("...", "anything..."),
    ("it waits for two minutes, then asks the gateway again and writes 504", "It waits for two minutes, then asks the "
     "gateway again and writes 503."),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "said"), RIGHT)
def test_it_is_said(expected: str, said: str) -> None:
    assert matches(expected, said)


@pytest.mark.parametrize(("expected", "said"), WRONG)
def test_it_is_not_said(expected: str, said: str) -> None:
    assert not matches(expected, said)


def test_an_answer_that_must_be_gone() -> None:
    assert matches("8000", "It was moved: not 7341 but 8000.", ["7341"]), "a denial does not say it"
    assert not matches("8000", "8000, or 7341.", ["7341"])
    assert not matches("8000", "8000 or 7,341", ["7341"]), "however it is written"
    assert matches("Elsbeth Marlow", "Elsbeth Marlow", ["Marlow"]), "the old answer is a part of the new one"
    assert not matches("Elsbeth Marlow", "Elsbeth Marlow, of Marlow", ["Marlow"])


def test_what_stands_in_a_text_stands_there_denied_too() -> None:
    assert holds("Is it not 7,341?", "7341") and not holds("Is it 73?", "7341")
