"""Attachments in sessions of Claude Code: content that the program adds to prompts and results.

A message typed while the agent ran is one, too (`queued_command`). Files that the user named with `@` are context. Text
from hooks and memory files is in `<system-reminder>` in the model's input, and is stripped like that of any program.
The other kinds, such as lists of skills, are left out.
"""

from collections.abc import Callable, Iterable
from typing import Any

from apollod.curation.conversation import Dropped, Entry, Link, Said
from apollod.curation.formats.blocks import form, json_text, text_of_blocks
from apollod.curation.typed_ahead import typed

_Attachment = dict[str, Any]
HOOKS_THAT_TELL = ("SessionStart", "UserPromptSubmit")
"""Events of hooks whose output the model sees"""
NAME_MAX = 40  # characters of an unknown kind's name, which comes from the log


def hear_attachment(attachment: _Attachment, record: str, after: str | None) -> Iterable[Entry]:
    """The entries of an attachment; `record` and `after`: its place in the tree."""
    kind = _string(attachment, "type")
    text = _SHOWN[kind](attachment) if kind in _SHOWN else ""
    if not text.strip():
        if record:
            yield Link(record, after or "")
        yield Dropped(f"attachment: {kind[:NAME_MAX]}")
    elif kind == "queued_command" and _is_of_a_person(attachment):
        yield typed(text, record, after)
    else:
        yield Said(form("user", text), id=record, after=after)


def _is_of_a_person(attachment: _Attachment) -> bool:
    origin = attachment.get("origin")
    sender = origin.get("kind", "human") if isinstance(origin, dict) else "human"
    mode = attachment.get("commandMode", "prompt")
    return sender == "human" and mode == "prompt" and not attachment.get("isMeta")


def _queued(attachment: _Attachment) -> str:
    return text_of_blocks(attachment.get("prompt"), "text")


def _file(attachment: _Attachment) -> str:
    content = attachment.get("content")
    file = content.get("file") if isinstance(content, dict) else None
    text = file.get("content") if isinstance(file, dict) else content
    path = _string(attachment, "filename")
    return _read("Read", {"file_path": path}, text) if path and isinstance(text, str) else ""


def _directory(attachment: _Attachment) -> str:
    path, text = _string(attachment, "path"), _string(attachment, "content")
    return _read("Bash", {"command": f"ls {path}"}, text) if path and text else ""


def _read(tool: str, given: dict[str, str], text: str) -> str:
    """The text with the program's own wording of a tool result."""
    return f"Called the {tool} tool with the following input: {json_text(given)}\n\nResult of it:\n{text}"


def _selected(attachment: _Attachment) -> str:
    path, text = _string(attachment, "filename"), _string(attachment, "content")
    lines = f"{attachment.get('lineStart')} to {attachment.get('lineEnd')}"
    return f"The user selected the lines {lines} from {path}:\n{text}" if text else ""


def _edited(attachment: _Attachment) -> str:
    path, text = _string(attachment, "filename"), _string(attachment, "snippet")
    return f"Note: {path} was modified by the user or by a linter:\n{text}" if text else ""


def _memory(attachment: _Attachment) -> str:
    content = attachment.get("content")
    text = content.get("content") if isinstance(content, dict) else content
    path = _string(attachment, "path")
    return _reminder(f"Contents of {path}:\n\n{text}") if isinstance(text, str) and text.strip() else ""


def _of_hook(attachment: _Attachment) -> str:
    content, hook = attachment.get("content"), _string(attachment, "hookName") or _string(attachment, "hookEvent")
    texts = content if isinstance(content, list) else [content]
    text = "\n".join(one for one in texts if isinstance(one, str))
    return _reminder(f"{hook} hook additional context: {text}") if text.strip() else ""


def _hook_output(attachment: _Attachment) -> str:
    event = _string(attachment, "hookEvent") or _string(attachment, "hookName").partition(":")[0]
    return _of_hook(attachment) if event in HOOKS_THAT_TELL else ""


def _blocked(attachment: _Attachment) -> str:
    error = attachment.get("blockingError")
    text = error.get("blockingError") if isinstance(error, dict) else error
    hook = _string(attachment, "hookName") or "a"
    return f"{hook} hook blocking error: {text}" if isinstance(text, str) and text.strip() else ""


def _critical(attachment: _Attachment) -> str:
    text = _string(attachment, "content")
    return _reminder(text) if text.strip() else ""


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"


def _string(attachment: _Attachment, key: str) -> str:
    value = attachment.get(key)
    return value if isinstance(value, str) else ""


_SHOWN: dict[str, Callable[[_Attachment], str]] = {
    "queued_command": _queued,
    "file": _file,
    "directory": _directory,
    "selected_lines_in_ide": _selected,
    "edited_text_file": _edited,
    "nested_memory": _memory,
    "hook_additional_context": _of_hook,
    "hook_success": _hook_output,
    "hook_blocking_error": _blocked,
    "critical_system_reminder": _critical,
}
"""By kind: function that returns the text the model sees"""
