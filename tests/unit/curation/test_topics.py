"""What a text is about, in a word."""

import pytest

from apollod.curation.signatures import CHARACTERS, topic


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("Yes, please do that for me, thank you.", ""),
        ("The invoice is due. Send the invoice with your tax return.", "invoice"),
        ("INVOICE, invoice; tide", "invoice"),
        ("beta alpha", "alpha"),  # as often and as long: the first one in the alphabet
        ("def run(self): return self.parser.parser", "parser"),
        ("Die Rechnung ist fällig, die Rechnung vom Mai", "rechnung"),
        ("x1x2x3x4 0123456789 ___", ""),
        ("[redacted password 1a2b] [redacted password 1a2b]", "password"),
    ],
)
def test_the_word_that_a_text_uses_most(text: str, found: str) -> None:
    assert topic(text) == found


def test_only_the_beginning_of_a_text_is_read() -> None:
    assert topic("tide " + " " * CHARACTERS + "invoice " * 100) == "tide"
