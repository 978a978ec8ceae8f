"""What is no document that can be taught."""

import pytest

from apollod.curation.documents.document_refusals import BYTES_MAX, document_text
from apollod.errors import LessonRefused


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.pdf", b"It is so.", "is no text or Markdown"),
        ("notes", b"It is so.", "is no text or Markdown"),
        ("a.md", b"", "is empty"),
        ("a.md", b" \n\t", "is empty"),
        ("a.md", b"It \xff is.", "is no UTF-8: byte 3"),
        ("a.md", b"It\x00is", "control characters"),
        ("a.md", b"a" * (BYTES_MAX + 1), "more than 300,000"),
        ("a.md", b"word " * 6_000, "a line of 30,000 characters"),
        ("a\x1b[2J.md", b"It is so.", "no name"),
        ("a" * 200 + ".md", b"It is so.", "no name"),
    ],
)
def test_what_is_refused(name: str, data: bytes, why: str) -> None:
    with pytest.raises(LessonRefused, match=why) as refused:
        document_text(name, data)
    assert refused.value.hint and "\n" not in str(refused.value)


def test_a_text_is_taken_without_its_secrets() -> None:
    assert document_text("a.MD", "\ufeffIt is so.\r\n".encode()) == "It is so.\r\n"
    assert "[redacted " in document_text("a.txt", b"The token is ghp_0123456789abcdefghijABCDEFGHIJ012345.")
