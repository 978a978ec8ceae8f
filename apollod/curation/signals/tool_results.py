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
from apollod.curation.signals.flag import Call, Flag, call_of, ids, quoted

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
_FAILED = re.compile(
    "|".join(
        (
            r"(?<![\w.])[1-9]\d* (?:failed|failing|failures?|fail|broken)\b", r"\bfailures?[:=] ?[1-9]", r"\bFAILED\b",
            r"^--- FAIL", r"^FAIL\b", r"^\S+: FAIL\b", r"\berror(?:\[E\d+\])?: could not compile",
            r"^error(?:\[E\d+\])?: ", r"\berror (?:TS|CS|MSB|NU|FS|BC)\d+", r"\bmake(?:\[\d+\])?: \*\*\*",
            r"(?<![\w.])[1-9]\d* errors?\b(?! expect)", r"[1-9]\d* problems?\b(?! \(0 errors)",
            r"\bB(?:UILD|uild) (?:FAILED|failed)\b", r"tests passed, [1-9]\d* tests? failed",
            r"\b(?:npm|pnpm|yarn) (?:error|ERR!)", r"\bERR_PNPM_", r"\bELIFECYCLE\b", r"\bFailed to compile\b",
            r"^Type error: ", r"\bFailed to (?:build|solve|load)\b", r"\bfailed to solve\b",
            r"\bexit(?:ed)?(?: with)?(?: exit)?(?: code| status):? [1-9]", r"^\s*\d+:\d+\s+error\s",
            r"^\S+:\d+(?::\d+)?: (?:fatal )?error\b", r"\(\d+,\d+\): error\b", r"\bcompilation (?:error|failed)",
            r"\bTest suite failed to run\b", r"^(?:\[?error\]? |Error: |\[Error: )", r"^\* What went wrong:",
            r"\bwarnings were emitted\) Halting VM", r"\.exs?:\d+:(?:\d+:)?\w+_\w+\b", r"\[ERROR\]", r"^✘ ",
        )
    ),
    re.MULTILINE,
)  # fmt: skip
_PASSED = re.compile(
    "|".join(
        (
            r"\b[1-9]\d* (?:passed|passing|pass)\b", r"\btest result: ok\b", r"^ok\s+\S+", r"^PASS\b", r"^OK\b",
            r"^\S+: OK\b", r"\bAll checks passed\b", r"\b(?:found )?no issues\b", r"\bno problems\b",
            r"\b0 (?:errors|problems|failures|failed|fail)\b", r"\bFinished `?\w+`? .*target",
            r"\bBUILD SUCCESSFUL\b", r"\b(?:BUILD|Build) (?:SUCCESS|succeeded|complete)", r"\b100% tests passed\b",
            r"[1-9]\d* tests?, 0 failures", r"\bOK \(\d+ tests?", r"✓ built in ", r"^Generated \S+ app$",
            r"\(passed successfully\)", r"\bSuccess: no issues\b", r"\bThe configuration is valid\b",
            r"\bprerendered as static content\b", r"^ ?✔ \S+ +Built\b", r"\bnaming to \S+ (?:[\d.]+s )?done\b",
            r"\bSuccessfully (?:built|tagged)\b", r"\ball files? (?:are|is) (?:well )?formatted\b",
            r"\bAll matched files use Prettier\b", r"\bAll tests? passed\b", r"\bNo fixes applied\b",
        )
    ),
    re.MULTILINE,
)  # fmt: skip
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
