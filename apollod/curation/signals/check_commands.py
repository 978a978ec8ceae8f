"""Recognises shell commands that check work: tests, linters, type checkers, builds; and whether the exit code is
theirs.

A command line is not parsed as a shell would: quoted text is blanked, and each piece between separators is examined
from its first word on, after programs that only start another one. The commands after a check decide the exit code of
the line: `pytest | tail` ends with that of `tail`. `check_outputs.py` interprets the output.
"""

import re
from typing import NamedTuple

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
_STARTERS = (
    r"\w+=\S*",
    r"(?:sudo|time|env|exec|command|nice|npx|bunx|xvfb-run)(?=\s)",
    r"timeout(?:\s+-\S+)*\s+\S+",
    r"(?:uv|poetry|pdm|hatch|pipenv|rye|bundle|coverage|composer|pnpm|yarn|npm|bun)"
    r"(?:\s+(?:--filter|-F|-w|--workspace|--prefix|-C)[\s=]\S+)*\s+(?:run|exec|dlx|x)\b"
    r"(?!\s+(?:t|test|tests|lint|check|build|typecheck)\b)",
    r"(?:pnpm|yarn|bun)(?=\s+(?:vitest|jest|tsc|eslint|playwright|mocha|prettier|biome)\b)",
    r"[\w.:/\\~-]*python[\d.]*(?:\.exe)?(?:\s+-[A-Za-z])*\s+-m",
    r"coverage\s+run(?:\s+-m)?",
    r"docker(?:-|\s+)compose\s+(?:exec|run)(?:\s+-\S+)*\s+[\w-]+",
    r"-\S+",
)
"""Prefixes that only start another program"""
_STARTER = re.compile(rf"(?:{'|'.join(_STARTERS)})\s+")
_ALONE = (
    "pytest|py\\.test|tox|nox|unittest|doctest|compileall|py_compile|jest|vitest|mocha|ava|rspec|phpunit|pest|phpstan"
    "|psalm|ctest|pyright|basedpyright|pylint|flake8|bandit|eslint|oxlint|xo|tsc|tsgo|vue-tsc|svelte-check|mypy|ty"
    "|golangci-lint|staticcheck|govulncheck|shellcheck|hadolint|actionlint|yamllint|markdownlint|rubocop|ktlint|detekt"
    "|swiftlint|stylelint|bats|prove|busted|cppcheck|clang-tidy|ansible-lint|tflint|kubeconform|ninja"
)
_TARGETS = (
    "test|tests|check|checks|lint|build|all|ci|verify|typecheck|types|unit|integration|e2e|coverage|validate|compile"
)
_SCRIPTS = "t|tests?|e2e|lint|type-?check|types|check|build|compile|validate|ci|verify"
_CHECKS = (
    rf"(?:{_ALONE})\b(?![.=/])",
    r"(?:ruff|ty)\s+check\b",
    r"ruff\s+format\s+(?:\S+\s+)*?--(?:check|diff)\b",
    r"(?:black|isort)\s+(?:\S+\s+)*?--check(?:-only)?\b",
    r"biome\s+(?:check|lint|ci|format)\b",
    r"prettier\s+(?:\S+\s+)*?(?:--check|-c)\b",
    r"(?:playwright|cypress)\s+(?:test|run)\b",
    r"(?:next|vite|astro|nuxt|ng|webpack|rollup|hugo|expo)\s+(?:build|lint|test|check)\b",
    r"(?:nx|turbo|lerna|lage|moon)\s+(?:run\s+|run-many\s+)?(?:\S+\s+)*?[\w:@/-]*(?:test|lint|build|check)\b",
    r"cargo\s+(?:\+\S+\s+)?(?:test|check|clippy|build|nextest|bench|doc|fmt\s+(?:\S+\s+)*?--check)\b",
    r"go\s+(?:test|vet|build)\b",
    rf"(?:npm|pnpm|yarn|bun|deno)(?:\s+(?:--filter|-F|-w|--workspace|--prefix|-C|--dir)[\s=]\S+|\s+-\S+)*"
    rf"\s+(?:run(?:-script)?\s+|task\s+)?(?:-\S+\s+)*(?:{_SCRIPTS})(?:[:.-][\w:.-]+)?(?=\s|$)",
    rf"(?:make|just|task|invoke|rake)(?:\s+-\S+(?:\s+\d+)?)*\s+(?:{_TARGETS})[\w:-]*(?=\s|$)",
    r"make(?:\s+-\S+(?:\s+\d+)?)*\s*$",
    r"(?:gradlew?(?:\.bat)?|mvnw?)\b(?=.*(?:\b|:)(?:test|check|build|verify|compile|assemble|lint|package|install)"
    r"(?:\b|[A-Z]))",
    r"(?:dotnet|swift|zig|flutter|dart|bazel|bazelisk|xcodebuild|sbt|lein|stack|cabal|rebar3|gleam|dune|meson|forge"
    r"|hardhat|anchor|crystal|raco|nimble)\s+(?:\S+\s+)*?(?:build|test|analyze|check|compile|eunit|ct|lint|runtest)\b",
    r"mix\s+(?:(?:do|cmd)\s+)?(?:test|compile|credo|dialyzer|format\s+(?:\S+\s+)*?--check-formatted|check|xref)\b",
    r"(?:artisan|manage\.py)\s+(?:test|check)\b",
    r"(?:php|[\w.:/\\~-]*python[\d.]*(?:\.exe)?)\s+(?:artisan|manage\.py)\s+(?:test|check)\b",
    r"(?:composer|pre-commit|tox-uv|rails|bin/rails|R)\s+(?:run\s+|CMD\s+)?(?:test|check|lint|validate|all)\b",
    r"pre-commit\s+run\b",
    r"(?:terraform|tofu|packer|helm|buf|kustomize|cdk|serverless|pulumi)\s+(?:\S+\s+)*?"
    r"(?:validate|lint|build|synth|breaking)\b",
    r"docker(?:\s+buildx|\s+image|(?:-|\s+)compose)?(?:\s+-\S+(?:\s+\S+\.ya?ml)?)*\s+build\b",
    r"(?:podman|buildah)\s+(?:build|bud)\b",
    r"cmake\s+(?:\S+\s+)*?--build\b",
    r"node\s+(?:\S+\s+)*?--test\b",
)
_CHECK = re.compile(rf"(?:\S*[/\\])?(?:{'|'.join(_CHECKS)})")
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
