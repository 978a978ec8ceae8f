"""Reads a document: refuses one that cannot be taught, with what to do, and splits it into sections: headings, and
below each its sentences, list items and rows of tables. Pure.

Markdown, reStructuredText and plain text are read by the same rules. Code is left out: it makes no questions.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from apollod.curation.lessons.asked_for import sentences_in
from apollod.curation.redaction import redact_text
from apollod.errors import LessonRefused

PASSAGE_MAX = 1_200
"""most characters of a passage; a longer section is several passages"""

Kind = Literal["text", "item", "row"]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.])\1{2,}\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\(?\d{1,3}[.)])\s+(\S.*)")
_ROW = re.compile(r"\s*\|(.*)\|\s*$")
_GRID = re.compile(r"\s*(?:\|[\s:|-]*-[\s:|-]*\||\+[-=+]+\+|=+(?: +=+)+)\s*$")
_PAIR = re.compile(r"\s*(?:\*\*|__)?[A-Z][\w /()-]{0,40}(?::(?:\*\*|__)?|(?:\*\*|__):)\s+[^\s.][^.]{0,100}")
_MARKUP: tuple[tuple[str, str], ...] = (
    (r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|</?[a-zA-Z][^<>]{0,200}>|\[\^[^\]]*\]", ""),
    (r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])", r"\1"),
    (r"`([^`<>]+?)\s*<[^<>`]*>`_+", r"\1"),
    (r":[a-z]+:`([^`]*)`", r"\1"),
    (r"(?<!\w)([*_]{1,3}|`{1,2})(\S(?:.*?\S)?)\1(?!\w)", r"\2"),
)


class Block(NamedTuple):
    """A paragraph, a list item, or a row of a table, whose `heads` name its cells."""

    kind: Kind
    text: str
    cells: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


class Section(NamedTuple):
    """The text under a heading, up to `PASSAGE_MAX`. `titles`: the headings above it, the document's first."""

    titles: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def passage(self) -> str:
        """The text for the model's context: the headings and the blocks under them."""
        shown = [" | ".join(one.cells) if one.kind == "row" else one.text for one in self.blocks]
        return "\n".join([*filter(None, [" - ".join(self.titles)]), *shown])[: 2 * PASSAGE_MAX]


def sections_of(text: str) -> list[Section]:
    """The nonempty sections, in order."""
    found, titles, under = list[Section](), list[tuple[int, str]](), list[Block]()
    levels = list[str]()
    for part in _parts(text.splitlines()):
        if isinstance(part, Block):
            under.append(part)
            continue
        levels += [] if part.mark in levels else [part.mark]
        depth = part.level or levels.index(part.mark) + 1
        found += _passages(titles, under)
        titles, under = [*(one for one in titles if one[0] < depth), (depth, part.title)], []
    return [*found, *_passages(titles, under)]


def _passages(titles: Sequence[tuple[int, str]], blocks: Sequence[Block]) -> Iterator[Section]:
    """The section as one passage, or as several if it is long."""
    names, held, size = tuple(title for _, title in titles), list[Block](), 0
    for block in (part for one in blocks for part in _bounded(one)):
        if held and size + len(block.text) > PASSAGE_MAX:
            yield Section(names, tuple(held))
            held, size = [], 0
        held.append(block)
        size += len(block.text)
    if held:
        yield Section(names, tuple(held))


def _bounded(block: Block) -> Iterator[Block]:
    """The block, or its sentences in groups of at most a passage."""
    if len(block.text) <= PASSAGE_MAX or block.kind == "row":
        yield block
        return
    held = ""
    for sentence in sentences_in(block.text):
        if held and len(held) + len(sentence) > PASSAGE_MAX:
            yield block._replace(text=held)
            held = ""
        held = f"{held} {sentence}".strip()
    if held:
        yield block._replace(text=held)


class _Heading(NamedTuple):
    """`level`: 0 if the mark, an underline, gives it."""

    level: int
    mark: str
    title: str


def _parts(lines: Sequence[str]) -> Iterator[Block | _Heading]:
    """Headings and blocks in order."""
    at, fence, held, heads = _after_front_matter(lines), "", list[str](), tuple[str, ...]()
    indented = False
    while at < len(lines):
        line = lines[at]
        at += 1
        fenced = _FENCE.match(line)
        if fence or fenced:
            if not fence and fenced:
                yield from _closed(held)
            fence = "" if fence and line.strip().startswith(fence) else fence or (fenced[1] if fenced else "")
            continue
        if not line.strip():
            literal = bool(held) and held[-1].rstrip().endswith("::")
            yield from _closed(held)
            heads, indented = (), literal or (indented and at < len(lines) and lines[at][:1] in (" ", "\t"))
            continue
        if indented or (not held and re.match(r" {4}|\t", line) and not _ITEM.match(line)):
            if line[0] in " \t":
                continue
            indented = False
        heading, next_ = _HEADING.match(line), lines[at] if at < len(lines) else ""
        underlined = not held and _UNDERLINE.match(next_) and _is_title(line, next_)
        if heading or underlined:
            yield from _closed(held)
            at += bool(underlined)
            mark = heading[1] if heading else next_[0]
            yield _Heading(len(mark) if heading else 0, mark, _plain(heading[2] if heading else line))
        elif _UNDERLINE.match(line) and not held:
            continue  # a rule, or the line over a title
        elif _GRID.match(line):
            continue
        elif row := _ROW.match(line):
            cells = tuple(_plain(cell) for cell in row[1].split("|"))
            yield from _closed(held)
            if heads:
                yield Block("row", " ".join(cells), cells, heads)
            heads = heads or cells
        elif _ITEM.match(line):
            yield from _closed(held)
            held.append(line)
        elif not held and _PAIR.fullmatch(line) and (not next_.strip() or _PAIR.fullmatch(next_)):
            yield Block("item", _plain(line))
        else:
            held.append(re.sub(r"^\s*(?:>\s?)+", "", line))
    yield from _closed(held)


def _after_front_matter(lines: Sequence[str]) -> int:
    """Index of the line after front matter: settings between two lines of dashes at the beginning."""
    if lines[:1] and lines[0].strip() == "---":
        return next((at + 1 for at in range(1, min(len(lines), 60)) if lines[at].strip() == "---"), 0)
    return 0


def _is_title(line: str, under: str) -> bool:
    return len(line.strip()) <= 120 and not _ITEM.match(line) and len(under.strip()) >= min(3, len(line.strip()))


def _closed(held: list[str]) -> Iterator[Block]:
    """The block that the held lines make; empties `held`."""
    text = _plain(" ".join(line.strip() for line in held))
    item = _ITEM.match(text) if held else None
    held.clear()
    text = (item[1] if item else text).removeprefix("[ ] ").removeprefix("[x] ").removesuffix("::").strip()
    if re.search(r"\w", text):
        yield Block("item" if item else "text", text)


def _plain(text: str) -> str:
    """The text without markup."""
    for pattern, written in _MARKUP:
        text = re.sub(pattern, written, text)
    return " ".join(text.split())


ENDINGS = (".md", ".markdown", ".txt", ".rst", ".text")
BYTES_MAX = 300_000
LINE_MAX = 20_000
"""characters of one line: longer ones are data, not prose"""
NAME_MAX = 120


def document_text(name: str, data: bytes) -> str:
    """The text of a document with secrets redacted. Raises LessonRefused for a name, size or content that is not
    allowed."""
    if not name.lower().endswith(ENDINGS):
        raise LessonRefused(
            f"{name!r} is no text or Markdown", f"teach {', '.join(ENDINGS[:3])}: save it as text, or copy its text out"
        )
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise LessonRefused(f"the name of the document is no name of 1 to {NAME_MAX} characters", "rename it")
    if len(data) > BYTES_MAX:
        raise LessonRefused(
            f"{name} has {len(data):,} bytes, more than {BYTES_MAX:,}",
            "teach its parts as files of their own; give whole books to the inbox",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LessonRefused(f"{name} is no UTF-8: byte {error.start} is wrong", "save it as UTF-8") from error
    if any(ord(sign) < 32 and sign not in "\n\r\t\f" for sign in text):
        raise LessonRefused(f"{name} is no text: it has control characters", "save it as plain text")
    if not text.strip():
        raise LessonRefused(f"{name} is empty", "write what the model has to know, in sentences")
    if (longest := max(map(len, text.splitlines()))) > LINE_MAX:
        raise LessonRefused(f"{name} has a line of {longest:,} characters, more than {LINE_MAX:,}", "break its lines")
    return redact_text(text)
