"""The search for many words finds each of them, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from apollod.curation import redaction
from apollod.curation.sieve import Sieve

WORDS = [
    b"@",
    b"key",
    b"sk-",
    b"_pat_",
    b"AKIA",
    b"eyJ",
    b"hooks.slack.com",
    b"token",
    b"passw",
    b"3xy",
    b"aaaa",
    b"Aa",
]
WORDS += [b"%d%s" % (number, letter) for number in range(10) for letter in (b"abc", b"Xy", b"--")]
SIEVE = Sieve(WORDS)

pieces = st.sampled_from([*WORDS, *(word.swapcase() for word in WORDS), b" ", b"k", b"e", b"\n", b"\0", b"\xff"])
texts = st.lists(pieces | st.binary(max_size=3), max_size=12).map(b"".join)


@given(texts)
def test_it_finds_what_searching_for_each_finds(text: bytes) -> None:
    lower = text.lower()
    assert SIEVE.found(text) == {word for word in WORDS if word in (lower if word == word.lower() else text)}


def test_each_word_of_the_rules_is_found_alone_at_the_end_and_in_a_text() -> None:
    sieve, of_words = redaction._known()
    assert len(of_words) > 40
    for word in of_words:
        for text in (word, b"x" + word, b'"-_' + word + b"-_", b" " * 5000 + word):
            assert word in sieve.found(text), (word, text)
        for other in (b"x", b"", word[:-1]):
            assert word not in sieve.found(other)
