"""Finds the result of a check: by its exit code, else by the words of its output."""

import re

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
