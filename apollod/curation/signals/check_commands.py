"""Which shell commands check work: tests, linters, type checkers, builds; and what their output says of the outcome.

A command line is not parsed as a shell would: quoted text is blanked, and each piece between separators is looked at
from its first word on, behind what only starts another program.
"""

import re

COMMAND_KEYS = ("command", "cmd", "script", "commands")
"""Arguments of shell tools that hold a command line, or its words"""
COMMAND_MAX = 4000  # characters; what comes later is a script
SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh"})

_HINT = re.compile(
    "test|check|lint|ruff|mypy|pyright|tsc|jest|tox|nox|make|build|vet|clippy|spec|mvn|gradle|biome|flake8|compile"
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_SEPARATOR = re.compile(r"&&|\|\||[;|\n&()]")
_STARTERS = (
    r"\w+=\S*",
    r"(?:sudo|time|env|exec|command|nice|npx|bunx|xvfb-run)(?=\s)",
    r"timeout(?:\s+-\S+)*\s+\S+",
    r"(?:uv|poetry|pdm|hatch|pipenv|rye|bundle|coverage|pnpm|yarn|npm|bun)\s+(?:run|exec|dlx|x)\b"
    r"(?!\s+(?:t|test|tests|lint|check|build|typecheck)\b)",
    r"(?:pnpm|yarn|bun)(?=\s+(?:vitest|jest|tsc|eslint|playwright|mocha|prettier|biome)\b)",
    r"[\w./~-]*python[\d.]*(?:\s+-[A-Za-z])*\s+-m",
    r"coverage\s+run(?:\s+-m)?",
    r"-\S+",
)
"""What only starts another program"""
_STARTER = re.compile(rf"(?:{'|'.join(_STARTERS)})\s+")
_ALONE = (
    "pytest|py\\.test|tox|nox|unittest|jest|vitest|mocha|ava|rspec|phpunit|ctest|pyright|basedpyright|pylint|flake8"
    "|eslint|tsc|mypy|golangci-lint|shellcheck|stylelint|bats|prove"
)
_TARGETS = "test|tests|check|checks|lint|build|all|ci|verify|typecheck|types|unit|integration"
_CHECKS = (
    rf"(?:{_ALONE})\b(?![.=/])",
    r"ruff\s+(?:check|format\s+--check)\b",
    r"black\s+--check\b",
    r"biome\s+(?:check|lint|ci)\b",
    r"prettier\s+(?:--check|-c)\b",
    r"playwright\s+test\b",
    r"cargo\s+(?:\+\S+\s+)?(?:test|check|clippy|build|nextest)\b",
    r"go\s+(?:test|vet|build)\b",
    r"(?:npm|pnpm|yarn|bun|deno)\s+(?:run\s+)?(?:t|tests?|lint|type-?check|check|build)(?::[\w:-]+)?(?=\s|$)",
    rf"make(?:\s+-\S+(?:\s+\d+)?)*\s*(?=$|(?:{_TARGETS})[\w:-]*)",
    r"(?:gradlew?|mvnw?)\b(?=.*\b(?:test|check|build|verify|compile)\b)",
    r"(?:dotnet|swift|zig|mix|flutter|dart|bazel)\s+(?:build\s+)?(?:test|build|analyze)\b",
)
_CHECK = re.compile(rf"(?:\S*/)?(?:{'|'.join(_CHECKS)})")
_NO_RUN = re.compile(r"\s--?(?:version|help|V|h|collect-only|list)\b")

_EXIT_CODE = re.compile(
    r"^\s*(?:exit code:? |process exited with code |command exited with code |\[exit code:? ?)(-?\d+)"
    r"|\"(?:exit_code|exitcode|returncode)\": ?(-?\d+)",
    re.IGNORECASE | re.MULTILINE,
)
_FAILED = re.compile(
    "|".join(
        (
            r"\b[1-9]\d* (?:failed|failing|failures?)\b", r"\bfailures?[:=] ?[1-9]", r"\bFAILED\b", r"^--- FAIL",
            r"^FAIL\b", r"^\S+: FAIL\b", r"\berror(?:\[E\d+\])?: could not compile", r"^error(?:\[E\d+\])?: ",
            r"\berror TS\d+", r"\bmake(?:\[\d+\])?: \*\*\*", r"\b[1-9]\d* (?:errors?|problems?)\b",
            r"\bB(?:UILD|uild) (?:FAILED|failed)\b", r"tests passed, [1-9]\d* tests? failed",
            r"\bTraceback \(most recent call last\)", r"\bcommand not found\b",
        )
    ),
    re.MULTILINE,
)  # fmt: skip
_PASSED = re.compile(
    "|".join(
        (
            r"\b[1-9]\d* (?:passed|passing)\b", r"\btest result: ok\b", r"^ok\s+\S+", r"^PASS\b", r"^OK\b",
            r"^\S+: OK\b", r"\bAll checks passed\b", r"\bno issues found\b",
            r"\b0 (?:errors|problems|failures|failed)\b", r"\bFinished `?\w+`? .*target",
            r"\bBUILD SUCCESSFUL\b", r"\bBuild succeeded\b", r"\b100% tests passed\b",
        )
    ),
    re.MULTILINE,
)  # fmt: skip
_FAILED_HINTS = ("ail", "AIL", "rror", "problem", "***", "Traceback", "not found")
_PASSED_HINTS = ("pass", "PASS", "ok", "OK", "no issues", "0 ", "Finished", "SUCCESS", "succeeded")
_EXIT_HINTS = ("exit", "Exit", "returncode")
"""Some of it is in what the patterns find, and looking for it is a hundred times faster"""
TAIL = 2000  # characters at the end of an output in which its verdict stands
HEAD = 600
NO_OUTPUT = ("(no output", "(empty", "Tool ran without output")
"""What agents write where there is none"""


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


def check_in(command: str) -> str:
    """The check that a command line runs, "" if it runs none."""
    command = command[:COMMAND_MAX]
    if not _HINT.search(command):
        return ""
    bare = _QUOTED.sub("''", command.partition("<<")[0])
    for piece in _SEPARATOR.split(bare):
        piece = piece.strip()
        at = 0
        while (starter := _STARTER.match(piece, at)) is not None:
            at = starter.end()
        found = _CHECK.match(piece, at)
        if found is not None and not _NO_RUN.search(piece):
            return found[0].strip()
    return ""


def exit_code(output: str) -> int | None:
    """As agents write it around the output of a command; None: it does not stand there."""
    if not any(hint in output for hint in _EXIT_HINTS):
        return None
    found = _EXIT_CODE.search(output, 0, HEAD)
    if found is None and len(output) > HEAD:
        found = _EXIT_CODE.search(output, len(output) - HEAD)
    return int(found[1] or found[2]) if found is not None else None


def outcome(output: str, failed: bool, told: bool) -> bool | None:
    """Did the check pass? `failed`: the log says that the call did; `told`: it would say it. Words go before the exit
    code, which in a pipe is that of another program. None: nothing says it."""
    end = output[-TAIL:]
    if any(hint in end for hint in _FAILED_HINTS) and _FAILED.search(end):
        return False
    code = exit_code(output)
    if failed or code:
        return False
    said = output.strip()
    silent = not said or said.startswith(NO_OUTPUT)
    if told or silent or code == 0:
        return True
    return True if any(hint in end for hint in _PASSED_HINTS) and _PASSED.search(end) else None


def _unwrapped(command: str) -> str:
    """What a shell is given to run."""
    found = re.match(r"\s*(?:/bin/)?(?:ba|z)?sh\s+-\w*c\s+(['\"])(.*)\1\s*$", command, re.DOTALL)
    return found[2] if found is not None else command
