"""Context window: choose the messages to keep before an answer when the whole conversation does not fit.

Pure; the same rules apply by characters (curation, which bounds what the journal stores) and by tokens (the trainer,
which knows `[trainer] max_tokens`). Kept first: the instructions at the head, the prompt that the answer belongs to,
and the newest messages before the answer, a call together with its results; then whole turns before the prompt, newest
first. Older messages are dropped at these borders. The message at the edge of the window is shortened in its middle,
with a mark that states by how much, and so are a head or a prompt that would crowd out everything else.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

Form = dict[str, Any]

HEAD_SHARE, PROMPT_SHARE = 4, 2  # at most a quarter of the room for instructions; half for the prompt, or what is free
WORTH = 8  # a shortened message is added only if at least an eighth of the room is left
INSTRUCTING = ("system", "developer")

_MARK = "\n[... {} characters left out ...]\n"
_MARKED = re.compile(r"\n\[\.\.\. (\d+) characters left out \.\.\.\]\n")


class Window(NamedTuple):
    """Indices of the messages to keep, in order; `tight`: groups of them to shorten, with the room of each group."""

    kept: tuple[int, ...]
    tight: tuple[tuple[tuple[int, ...], int], ...]


def window(roles: Sequence[str], prompt: int | None, size: Callable[[int], int], room: int) -> Window:
    """Choose the messages to keep before an answer. `prompt`: index of the message that it answers; `size`: size of a
    message in the unit of `room`, called only as far back as there is room."""
    head = next((n for n, role in enumerate(roles) if role not in INSTRUCTING), len(roles))
    kept, tight = list[int](), list[tuple[tuple[int, ...], int]]()
    left = room

    def take(group: Sequence[int], most: int, needed: int) -> None:
        nonlocal left
        kept.extend(group)
        if needed > most:
            tight.append((tuple(group), most))
        left -= min(needed, most)

    begin = head if prompt is None else prompt + 1
    if head:
        take(range(head), room // HEAD_SHARE, sum(map(size, range(head))))
    if prompt is not None and prompt >= head:
        half, newer = room // PROMPT_SHARE, 0
        for n in range(len(roles) - 1, prompt, -1):
            newer += size(n)
            if newer >= half:
                break
        take([prompt], max(half, left - newer), size(prompt))
    all_fit, newest = True, True
    for group in _backwards(roles, max(begin, head), len(roles), lambda role: role != "tool"):
        needed = sum(map(size, group))
        if needed > left and not newest and left < room // WORTH:
            all_fit = False
            break
        all_fit = needed <= left
        take(group, left, needed)
        newest = False
        if not all_fit:
            break
    if all_fit and prompt is not None:
        for turn in _backwards(roles, head, prompt, lambda role: role == "user"):
            if (needed := sum(map(size, turn))) > left:
                break
            take(turn, left, needed)
    return Window(tuple(sorted(kept)), tuple(tight))


def _backwards(roles: Sequence[str], begin: int, end: int, begins: Callable[[str], bool]) -> list[range]:
    """Split begin .. end-1 into runs, each from a message that starts one; last run first."""
    found, stop = [], end
    for n in range(end - 1, begin - 1, -1):
        if begins(roles[n]) or n == begin:
            found.append(range(n, stop))
            stop = n
    return found


def size_of(form: Form) -> int:
    """Approximate number of characters of a message that a model sees."""
    return sum(map(len, _texts(form))) + sum(len(call["function"]["name"]) for call in form.get("tool_calls") or ())


def called_of(tools: Sequence[dict[str, Any]], forms: Iterable[Form]) -> list[dict[str, Any]]:
    """Filter tools to those that these messages call. Logs hold tool definitions of any shape."""
    called = {call["function"]["name"] for form in forms for call in form.get("tool_calls") or ()}
    told = [(tool["function"] if isinstance(tool.get("function"), dict) else tool).get("name") for tool in tools]
    return [tool for tool, name in zip(tools, told, strict=True) if isinstance(name, str) and name in called]


def shortened(forms: Sequence[Form], room: int) -> list[Form]:
    """Shorten the longest texts to one common length, so that all messages together have about `room` characters."""
    lengths = sorted(len(text) for form in forms for text in _texts(form))
    most = _level(lengths, max(0, room))
    if not lengths or most >= lengths[-1]:
        return list(forms)
    return [_with_texts(form, lambda text: cut(text, most)) for form in forms]


def cut(text: str, most: int) -> str:
    """Cut the middle of a text to about `most` characters, with a mark that counts the characters removed. A text that
    would not get shorter is returned unchanged."""
    if len(text) <= most:
        return text
    ends = max(0, most - len(_MARK) - 6) // 2
    middle = text[ends : len(text) - ends]
    again = [(match.group(), int(match.group(1))) for match in _MARKED.finditer(middle)]
    count = len(middle) - sum(len(mark) for mark, _ in again) + sum(number for _, number in again)
    shorter = text[:ends] + _MARK.format(count) + text[len(text) - ends :]
    return shorter if len(shorter) < len(text) else text


def _level(lengths: Sequence[int], room: int) -> int:
    """Length to cut the longest of these (sorted) lengths to, so that they sum to `room`."""
    rest = room
    for n, length in enumerate(lengths):
        if length * (len(lengths) - n) > rest:
            return rest // (len(lengths) - n)
        rest -= length
    return lengths[-1] if lengths else 0


def _texts(form: Form) -> list[str]:
    """Texts of a message: content, reasoning and arguments of calls."""
    found = [form["content"]]
    if form.get("reasoning_content"):
        found.append(form["reasoning_content"])
    for call in form.get("tool_calls") or ():
        _gather(call["function"]["arguments"], found)
    return found


def _gather(value: Any, into: list[str]) -> None:
    if isinstance(value, str):
        into.append(value)
    elif isinstance(value, dict):
        for name, one in value.items():
            into.append(name)
            _gather(one, into)
    elif isinstance(value, list):
        for one in value:
            _gather(one, into)
    elif value is not None:
        into.append(str(value))


def _with_texts(form: Form, change: Callable[[str], str]) -> Form:
    changed = {**form, "content": change(form["content"])}
    if form.get("reasoning_content"):
        changed["reasoning_content"] = change(form["reasoning_content"])
    if form.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _changed(call["function"]["arguments"], change)}}
            for call in form["tool_calls"]
        ]
    return changed


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _changed(one, change) for name, one in value.items()}
    if isinstance(value, list):
        return [_changed(one, change) for one in value]
    return value
