"""Documents as sections: headings, paragraphs, lists, tables and code, in Markdown, reStructuredText and plain text;
and documents that are refused."""

import pytest

from apollod.curation.documents.document_sections import BYTES_MAX, PASSAGE_MAX, Block, document_text, sections_of
from apollod.errors import LessonRefused

MARKDOWN = """\
---
title: not read
---
# Quillon

Quillon is a **small** proxy, see [its page](https://q.example).
It listens on `7341`.

## Ports

- web: 80
* mail: 25
  and 465
1. first

| Name | Port |
|------|------|
| web  | 80   |

```sh
quillon --port 7341
```

> Quoted text is text.
"""
RST = """\
=======
Quillon
=======

It is a proxy::

    quillon --port 7341

    more code

Ports
-----

The port is 7341.
"""


def test_markdown_is_headings_text_items_and_rows_without_its_code() -> None:
    first, second = sections_of(MARKDOWN)
    assert first.titles == ("Quillon",) and second.titles == ("Quillon", "Ports")
    assert [one.text for one in first.blocks] == ["Quillon is a small proxy, see its page. It listens on 7341."]
    assert [(one.kind, one.text) for one in second.blocks] == [
        ("item", "web: 80"), ("item", "mail: 25 and 465"), ("item", "first"), ("row", "web 80"),
        ("text", "Quoted text is text."),
    ]  # fmt: skip
    assert second.blocks[3] == Block("row", "web 80", ("web", "80"), ("Name", "Port"))
    assert second.passage.startswith("Quillon - Ports\n") and "web | 80" in second.passage


def test_restructured_text_has_underlined_titles_and_indented_code() -> None:
    first, second = sections_of(RST)
    assert (first.titles, second.titles) == (("Quillon",), ("Quillon", "Ports"))
    assert [one.text for one in first.blocks] == ["It is a proxy"]
    assert [one.text for one in second.blocks] == ["The port is 7341."]


def test_a_heading_ends_those_below_it() -> None:
    titles = [one.titles for one in sections_of("# A\na.\n## B\nb.\n### C\nc.\n## D\nd.\n# E\ne.\n")]
    assert titles == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D"), ("E",)]


def test_text_without_a_heading_is_a_section_without_a_title() -> None:
    (only,) = sections_of("The port of Quillon is 7341.\nIt is old.\n\nIts owner is Ada Penn.\n")
    assert only.titles == () and len(only.blocks) == 2


@pytest.mark.parametrize("line", ["**Port**: 7341", "Port: 7341", "__Port:__ 7341"])
def test_a_line_with_a_key_is_an_item(line: str) -> None:
    (section,) = sections_of(f"# Quillon\n\n{line}\n\nIt is old.\n")
    assert [one.kind for one in section.blocks] == ["item", "text"] and section.blocks[0].text == "Port: 7341"


def test_a_long_section_is_several_passages_that_lose_nothing() -> None:
    sentences = [f"Machine {n} was built by the yard of Orland in 19{n:02}." for n in range(90)]
    found = sections_of("# Yard\n\n" + " ".join(sentences))
    assert len(found) > 3 and all(len(one.passage) <= PASSAGE_MAX + 100 for one in found)
    assert " ".join(block.text for one in found for block in one.blocks) == " ".join(sentences)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# A\n## B\n", "```\ncode\n", "---\n", "|a|b|\n|-|-|\n", "- \n-\n", "===\n"]
)
def test_what_says_nothing_has_no_sections(text: str) -> None:
    assert sections_of(text) == []


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
