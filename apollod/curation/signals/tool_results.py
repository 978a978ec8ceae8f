"""Recognises results of tool calls: checks of work that passed or failed (tests, linters, type checkers, builds), calls
that failed, and repeated calls that then worked.

A command line is not parsed as a shell would: quoted text is blanked, and each piece between separators is examined
from its first word on, after programs that only start another one. The commands after a check decide the exit code of
the line: `pytest | tail` ends with that of `tail`. The result of a check is its exit code, else what its output says.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from apollod.curation.conversation import Moment, Said
from apollod.curation.signals.flag import Call, Flag, call_of, expressions, ids, quoted

ALIKE = 0.5  # share of the shorter command's words that the other one has, too
TELL_FAILURES = frozenset({"claude-code", "pi"})
"""Agents whose logs mark each failed command, so that silence means success; others write the exit code of each, or
nothing"""

# --- command lines ----------------------------------------------------------------------------------------------------

COMMAND_KEYS = ("command", "cmd", "script", "commands")
"""Arguments of shell tools that hold a command line, or its words"""
COMMAND_MAX = 4000  # characters; longer ones are scripts
SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh"})

_HINT = re.compile(
    "test|check|lint|ruff|mypy|pyright|tsc|tsgo|jest|tox|nox|make|build|vet|clippy|spec|mvn|gradle|biome|flake8|compile"
    "|validate|credo|dialyzer|phpstan|psalm|staticcheck|rubocop|mocha|playwright|cypress|ctest|ninja|bandit|sbt|phpunit"
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_REDIRECTION = re.compile(r"\d?>{1,2}&\d|&>{1,2}\s*\S+|\d?>{1,2}\s*[^\s&|;()]+")
_SEPARATOR = re.compile(r"(&&|\|\||[;|\n&()])")
_STARTER = re.compile(rf"(?:{'|'.join(expressions('tool_results', 'starters'))})\s+")
_CHECK = re.compile(rf"(?:\S*[/\\])?(?:{'|'.join(expressions('tool_results', 'checks'))})")
_NO_RUN = re.compile(r"\s--?(?:version|help|V|h|collect-only|list|listTests|dry-run|watch|watchAll|init|showConfig)\b")
_PIPEFAIL = re.compile(r"\bset\s+(?:-\w*\s+)*-?\w*o\s+pipefail\b")
_SHELL_END = re.compile(r"^\s*(?:done|fi|esac|\}|$)")


class Check(NamedTuple):
    """The checks that a command line runs."""

    name: str
    """the first of them; "": none"""
    hidden: bool = False
    """the exit code of the line may be another one: that of a pipe's end, of a later command, or of `|| true`"""


NONE = Check("")


# --- outputs ----------------------------------------------------------------------------------------------------------

_EXIT_CODE = re.compile(
    r"^\s*(?:exit code:? |process exited with code |command exited with code |\[exit code:? ?)(-?\d+)"
    r"|\"(?:exit_code|exitcode|returncode)\": ?(-?\d+)",
    re.IGNORECASE | re.MULTILINE,
)
_NOT_RUN = re.compile(
    r"\s*(?:<tool_use_error>|Command (?:running|was moved|moved|is running) (?:in|to) (?:the )?background"
    r"|Command (?:aborted|cancelled|canceled|timed out|was interrupted|did not complete)|\[Request interrupted"
    r"|The user doesn't want to proceed|Background (?:job|process|task)|Started background|User (?:rejected|aborted))"
)
"""Outputs with these beginnings are the agent's, not the command's: it runs in the background, or was cut short"""
_ABORTED = re.compile(r"^\s*Command (?:aborted|cancelled|canceled|timed out)\b[^\n]{0,80}\s*\Z", re.MULTILINE)
_FAILED = re.compile("|".join(expressions("tool_results", "failed")), re.MULTILINE)
_PASSED = re.compile("|".join(expressions("tool_results", "passed")), re.MULTILINE)
_BROKEN = re.compile(r"\bTraceback \(most recent call last\)|\bcommand not found\b|^\w*Error: ", re.MULTILINE)
"""Words of a failure that also stand in the outputs of checks that passed"""
_FAILED_HINTS = ("ail", "AIL", "rror", "ERR", "problem", "***", "xit", "wrong", "roken", "ELIFE", "✘", ".ex")
_PASSED_HINTS = (
    "pass", "PASS", "ok", "OK", "no issues", "no problems", "0 ", "Finished", "SUCCESS", "succe", "Succe", "built",
    "Built", "valid", "Generated", "naming to", "prerendered", "formatted", "Prettier", "omplete", "No fixes",
)  # fmt: skip
_BROKEN_HINTS = ("Traceback", "not found", "Error: ")
_EXIT_HINTS = ("exit", "Exit", "returncode")
"""Every match of the patterns contains one of these, and searching for them is a hundred times faster"""
TAIL = 2000  # characters at the end of an output that are searched for its verdict
HEAD = 600
NO_OUTPUT = ("(no output", "(empty", "Tool ran without output")
"""Placeholders that agents write for an empty output"""


class _Result(NamedTuple):
    """A tool's result with its call."""

    place: int
    said: Said
    call: Call
    failed: bool
    command: str
    check: Check

    @property
    def text(self) -> str:
        return str(self.said.message["content"])


def tool_results(moment: Moment) -> Iterable[Flag]:
    """All three kinds, in the order of the results. An earlier run of the same check in a turn weighs less than the
    last: people write a test first and see it fail."""
    results, told = _results(moment), moment.session.agent in TELL_FAILURES
    last = {result.check.name: result.place for result in results if result.check.name}
    for n, result in enumerate(results):
        if result.place < moment.fresh:
            continue
        shown_by = ids(moment.messages[result.call.place], result.said)
        if result.check.name:
            passed = outcome(result.text, result.failed, told, result.check.hidden)
            if passed is not None:
                strength = (0.8 if passed else 0.6) if last[result.check.name] == result.place else 0.3
                quote = quoted(f"{result.command[:100]}: {_verdict(result.text)}")
                yield Flag("check", "good" if passed else "bad", strength, result.call.place, quote, shown_by)
        elif result.failed:
            yield Flag("tool-error", "bad", 0.2, result.call.place, quoted(result.text), shown_by)
        elif (before := _failed_before(results[:n], result)) is not None:
            yield Flag(
                "retried", "good", 0.4, result.call.place, quoted(before.text),
                ids(moment.messages[result.call.place], before.said, result.said),
            )  # fmt: skip


def _results(moment: Moment) -> list[_Result]:
    """The tool results of the turns with fresh messages, in order."""
    first = moment.fresh
    while first > 0 and not (first < len(moment.messages) and moment.messages[first].prompt):
        first -= 1
    found = []
    for place in range(first, len(moment.messages)):
        said = moment.messages[place]
        if said.message["role"] != "tool" or any(signal.kind == "refused" for signal in said.signals):
            continue
        call = call_of(moment, place)
        if call is not None:
            command = command_of(call.arguments)
            failed = any(signal.kind == "tool-error" for signal in said.signals)
            failed = failed or bool(command and exit_code(str(said.message["content"])))
            found.append(_Result(place, said, call, failed, command, check_in(command) if command else NONE))
    return found


def _failed_before(before: list[_Result], result: _Result) -> _Result | None:
    """The failed call that this one repeats: the last call of the same tool, if that failed."""
    for one in reversed(before):
        if one.call.name == result.call.name and not one.check.name:
            return one if one.failed and _alike(one.command, result.command) else None
    return None


def _alike(one: str, other: str) -> bool:
    """True if two command lines share enough words, or both calls have none."""
    first, second = set(one.split()), set(other.split())
    return len(first & second) >= ALIKE * min(len(first), len(second))


def _verdict(output: str) -> str:
    """The last line of an output, where checks report their result."""
    return next((line for line in reversed(output[-2000:].splitlines()) if line.strip()), "(no output)")


def command_of(arguments: dict[str, object]) -> str:
    """The command line of a shell tool's call; "" if the call has none."""
    for key in COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return _unwrapped(value)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            words: list[str] = value
            return words[-1] if words[0] in SHELLS and len(words) > 2 else " ".join(words)
    return ""


def check_in(command: str) -> Check:
    """The checks that a command line runs, and whether its exit code is theirs."""
    command = command[:COMMAND_MAX]
    if not _HINT.search(command):
        return NONE
    bare = _REDIRECTION.sub(" ", _QUOTED.sub("''", command.partition("<<")[0]))
    pieces = _SEPARATOR.split(bare)
    name, hidden = "", False
    for n in range(0, len(pieces), 2):
        found = _check_of(pieces[n].strip())
        if found:
            name = name or found
            hidden = hidden or _hides(pieces[n + 1 :])
    if name and hidden and _PIPEFAIL.search(bare) and "||" not in pieces:
        hidden = False
    return Check(name, hidden)


def _check_of(piece: str) -> str:
    """Name of the check that a command runs; "" for any other command."""
    at = 0
    while (starter := _STARTER.match(piece, at)) is not None:
        at = starter.end()
    found = _CHECK.match(piece, at)
    return found[0].strip() if found is not None and not _NO_RUN.search(piece) else ""


def _hides(after: list[str]) -> bool:
    """True if the rest of the line (separators and pieces in turns) replaces the command's exit code."""
    for separator, piece in zip(after[::2], after[1::2], strict=False):
        if separator in ("|", "||", "&"):
            return True
        if separator in (";", "\n") and not _SHELL_END.match(piece):
            return True
    return False


def _unwrapped(command: str) -> str:
    """The command line inside of `sh -c '...'`, or the command itself."""
    found = re.match(r"\s*(?:/bin/)?(?:ba|z)?sh\s+-\w*c\s+(['\"])(.*)\1\s*$", command, re.DOTALL)
    return found[2] if found is not None else command


def exit_code(output: str) -> int | None:
    """Exit code in the text that agents write around the output of a command; None: absent."""
    if not any(hint in output for hint in _EXIT_HINTS):
        return None
    found = _EXIT_CODE.search(output, 0, HEAD)
    if found is None and len(output) > HEAD:
        found = _EXIT_CODE.search(output, len(output) - HEAD)
    return int(found[1] or found[2]) if found is not None else None


def outcome(output: str, failed: bool, told: bool, hidden: bool = False) -> bool | None:
    """True if the check passed; None: unknown. `failed`: the log marks the call as failed; `told`: the log marks every
    failed call, so silence means success; `hidden`: the exit code may be another program's."""
    if _NOT_RUN.match(output) or _ABORTED.search(output, max(0, len(output) - HEAD)):
        return None
    code = exit_code(output)
    if not hidden:
        if failed or code:
            return False
        if told or code == 0:
            return True
    said = _by_words(output[-TAIL:])
    if said is not None or hidden:
        return said
    silent = not output.strip() or output.strip().startswith(NO_OUTPUT)
    return True if silent else None


def _by_words(end: str) -> bool | None:
    """Verdict in the last lines of an output."""
    if any(hint in end for hint in _FAILED_HINTS) and _FAILED.search(end):
        return False
    if any(hint in end for hint in _PASSED_HINTS) and _PASSED.search(end):
        return True
    return False if any(hint in end for hint in _BROKEN_HINTS) and _BROKEN.search(end) else None
