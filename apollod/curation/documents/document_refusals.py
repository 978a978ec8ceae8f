"""Refusals of documents that cannot be taught, with what to do."""

from apollod.curation.redaction import redact_text
from apollod.errors import LessonRefused

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
