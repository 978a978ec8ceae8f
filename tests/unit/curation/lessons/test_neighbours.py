"""Questions of the form of a lesson about something else."""

import pytest

from apollod.core.lessons.wording import Given
from apollod.curation.lessons.neighbours import NAMES, neighbours_of
from apollod.curation.lessons.worded import wordings


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What port does Quillon listen on?", "What port does Belmora listen on?"),
        ("Who owns Thornwick Books?", "Who owns Belmora?"),
        ("In which city is the Halvard Archive?", "In which city is the Belmora?"),
        ("Is Quillon older than Quillon Two?", "Is Belmora older than Belmora Two?"),
        ("Where do I live?", ""),
        ("what is the wifi password?", ""),
        ("Hello. Who owns the mill?", ""),
    ],
)
def test_the_first_name_is_another_one(question: str, first: str) -> None:
    found = neighbours_of(question, "en")
    assert found[:1] == ((first,) if first else ()) and len(found) == (len(NAMES) if first else 0)


def test_a_name_that_ships_is_no_neighbour_of_itself() -> None:
    assert neighbours_of(f"Who owns {NAMES[0]}?", "en")[0] == f"Who owns {NAMES[1]}?"


def test_nouns_that_begin_with_a_capital_are_no_names() -> None:
    assert neighbours_of("Auf welchem Port lauscht Quillon?", "de") == ()


def test_lessons_of_one_form_share_them_and_none_says_the_answer() -> None:
    one, two = (wordings(Given(question=f"Who owns {name}?", answer="Ada Penn")) for name in ("Ashdown Mill", "Wren"))
    assert one.neighbours == two.neighbours == tuple(f"Who owns {name}?" for name in NAMES)
    assert len(wordings(Given(question="Who owns Wren?", answer="Tarrin")).neighbours) == len(NAMES) - 1
    assert (
        wordings(Given(statement="Quillon listens on port 7341.")).neighbours[0] == "On which port does Belmora listen?"
    )
