"""The tokens of an answer by which it passes, found where the endpoint tells the text of each token."""

import pytest

from apollod.adapters.llm.openai_api import Choice
from apollod.adapters.llm.probing import _deciding
from apollod.curation.probes.probe_item import Probe


def probe(expect: str) -> Probe:
    return Probe(id="a", group="facts", kind="regex", messages=({"role": "user", "content": "?"},), expect=expect)


SAID = ("The", " city", " is", " Zü", "rich", ".", "<end>")


@pytest.mark.parametrize(
    ("expect", "tokens"),
    [
        (r"(?i)\bzürich", (3, 5)),
        (r"is Z", (2, 4)),
        (r"^The\b", (0, 1)),
        (r"Zürich\.", (3, 6)),
        (r".*", (0, 6)),
        (r"Bern", (0, 0)),
        (r"Z(?=ü)", (0, 0)),  # not for RE2
    ],
)
def test_the_tokens_of_the_match(expect: str, tokens: tuple[int, int]) -> None:
    pieces = tuple(piece.encode() for piece in SAID)
    said = Choice("The city is Zürich.", "stop", (1, 2, 3, 4, 5, 6, 7), (-0.1,) * 7, pieces)
    assert _deciding(probe(expect), said, said.text) == tokens


def test_all_of_an_answer_whose_tokens_have_no_text() -> None:
    said = Choice("Bern", "stop", (1,), (-0.1,))
    assert _deciding(probe("Bern"), said, said.text) == (0, 0)
    broken = Choice("Zürich", "stop", (1, 2), (-0.1, -0.2), (b"Z\xef\xbf\xbd", b"\xef\xbf\xbdrich"))
    assert _deciding(probe("rich"), broken, broken.text) == (0, 0)
