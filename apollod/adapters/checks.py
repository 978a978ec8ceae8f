"""Runs a pattern's check on an answer: a regular expression, a JSON schema or a command; rubrics go to the judge.

All of them run in a process group that is killed after a time limit, and that sees nothing of the configuration and no
secret of the environment.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from apollod.adapters import check_child
from apollod.adapters.check_child import schema_validator
from apollod.adapters.system.processes import describe_exit, needed_of, tell
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.settings import Check
from apollod.errors import DreamCheckFailed
from apollod.explain import reason

SCHEMA_BYTES_MAX = 1 << 20
CHECKS_MAX = 32  # in one process
SAID_BYTES_MAX = 131_072  # kept of a command's output; the rest is read and dropped. Room for CHECKS_MAX reasons
START_S = 5.0  # for a process to start, and to load jsonschema, on a busy machine
REASON_MAX = 300  # characters
PIPES_S = 1.0  # for what is still in the pipes of a command that ended
Kind = Literal["regex", "schema"]


async def check(check: Check, scenario: Iterable[Turn], answer: str, timeout_s: float = 10.0) -> tuple[bool, str]:
    """Check an answer; return (passes, reason if not). Passes where a rubric is the only check.

    Raises DreamCheckFailed where there is no result: a command that ends with a code other than 0 and 1 or cannot be
    started, a schema that cannot be read, and anything that takes longer than `timeout_s`.
    """
    return (await check_answers(check, [(tuple(scenario), answer)], timeout_s))[0]


async def check_answers(
    check_: Check, answers: Sequence[tuple[Sequence[Turn], str]], timeout_s: float = 10.0
) -> list[tuple[bool, str]]:
    """Check each (scenario, answer) as `check` does. Raises DreamCheckFailed for the first one without a result."""
    if check_.command:
        return [await _by_command(check_.command, scenario, answer, timeout_s) for scenario, answer in answers]
    if not check_.by_code:
        return [(True, "")] * len(answers)
    kind: Kind = "regex" if check_.regex else "schema"
    expected = check_.regex or await _schema_in_time(check_.schema, timeout_s)
    found = await check_all(kind, [(expected, answer) for _, answer in answers], timeout_s)
    if failed := next((one for one in found if isinstance(one, DreamCheckFailed)), None):
        raise failed
    return [one for one in found if not isinstance(one, DreamCheckFailed)]


def problem(check: Check) -> str:
    """Reason why a check cannot be used, as far as that shows before there is an answer; empty if it can. Blocking.

    `core.facts.dreams.patterns.pattern_problem` tests that only one kind of check is given.
    """
    if check.regex:
        try:
            re.compile(check.regex)
        except (re.error, RecursionError, OverflowError) as error:
            return f"check: {check.regex!r} is no regular expression: {error}"
    if check.schema:
        try:
            schema_validator(_schema(check.schema))
        except DreamCheckFailed as error:
            return f"check: {error}"
        except (ValueError, RecursionError) as error:
            return f"check: {check.schema} is no JSON schema: {error}"
    if check.command and shutil.which(check.command[0]) is None:
        return f"check: the command {check.command[0]!r} is not there, or may not be run"
    return ""


async def _schema_in_time(path: str, timeout_s: float) -> Any:
    """Read in a thread, which is abandoned after the time limit: a network file system may never answer."""
    with anyio.move_on_after(timeout_s):
        return await anyio.to_thread.run_sync(_schema, path, abandon_on_cancel=True)
    raise DreamCheckFailed(f"the schema {path} took longer than {timeout_s:g} s to read")


def _schema(path: str) -> Any:
    """Blocking."""
    try:
        with open(os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DreamCheckFailed(f"the schema {path} is no file")
            data = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise DreamCheckFailed(f"the schema {path} cannot be read: {reason(error)}") from error
    if len(data) > SCHEMA_BYTES_MAX:
        raise DreamCheckFailed(f"the schema {path} is larger than {SCHEMA_BYTES_MAX >> 20} MiB")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DreamCheckFailed(f"the schema {path} is no JSON: {error}") from error
    if not isinstance(value, dict | bool):
        raise DreamCheckFailed(f"the schema {path} is no JSON object")
    return value


async def check_all(
    kind: Kind, asked: Sequence[tuple[Any, str]], timeout_s: float = 10.0
) -> list[tuple[bool, str] | DreamCheckFailed]:
    """For each (expected, answer), return (passes, reason if not), or an error where there is no result.

    `expected` is a regular expression or a JSON schema. Many checks share a process, since starting one takes longer
    than most of them; each has `timeout_s`, and one that takes longer does not affect the others.
    """
    found: list[tuple[bool, str] | DreamCheckFailed] = []
    while len(found) < len(asked):
        found += await _by_one_child(kind, asked[len(found) : len(found) + CHECKS_MAX], timeout_s)
    return found


async def _by_one_child(
    kind: Kind, asked: Sequence[tuple[Any, str]], timeout_s: float
) -> list[tuple[bool, str] | DreamCheckFailed]:
    """Results of one process: for all checks, or up to the one that ended it. Without site-packages Python starts in a
    quarter of the time."""
    apart = ["-I", "-S"] if kind == "regex" else ["-I"]
    command = [sys.executable, *apart, str(Path(check_child.__file__))]
    try:
        told = json.dumps({"kind": kind, "checks": asked, "limit_s": timeout_s}).encode()
    except (ValueError, RecursionError) as error:
        raise DreamCheckFailed(f"the {kind} cannot be checked: {error}") from error
    ended = await _run(command, told, timeout_s * len(asked) + START_S, f"the {kind}")
    found = [_said(kind, line) for line in ended.said.split(b"\n")[: len(asked) + 1][:-1]]
    if len(found) < len(asked):
        if ended.code == -signal.SIGALRM:
            return [*found, DreamCheckFailed(f"the {kind} took longer than {timeout_s:g} s and was killed")]
        last = _line(ended.complaint.strip().rpartition(b"\n")[2])
        found.append(DreamCheckFailed(f"the {kind} cannot be checked: {last or describe_exit(ended.code)}"))
    return found


def _said(kind: Kind, line: bytes) -> tuple[bool, str] | DreamCheckFailed:
    """Result of one check, from a line of the process."""
    try:
        why = json.loads(line)
    except (ValueError, RecursionError) as error:
        return DreamCheckFailed(f"the {kind} cannot be checked: {error}: {_line(line)}")
    if not isinstance(why, str):
        return DreamCheckFailed(f"the {kind} cannot be checked: this is no reason: {_line(line)}")
    return not why, _line(why.encode(errors="replace"))


async def _by_command(
    command: Sequence[str], scenario: Iterable[Turn], answer: str, timeout_s: float
) -> tuple[bool, str]:
    messages = [{"role": turn.role, "content": turn.content} for turn in scenario]
    told = json.dumps({"messages": messages, "answer": answer}).encode()
    ended = await _run(command, told, timeout_s, command[0])
    if ended.code == 0:
        return True, ""
    if ended.code == 1:
        return False, _line(ended.said.strip().partition(b"\n")[0]) or f"{command[0]} says no"
    last = _line((ended.complaint.strip() or ended.said.strip()).rpartition(b"\n")[2])
    raise DreamCheckFailed(
        f"{command[0]} ended with {describe_exit(ended.code)}, neither 0 nor 1" + (f": {last}" if last else "")
    )


class _Ended(NamedTuple):
    code: int
    said: bytes
    complaint: bytes


async def _run(command: Sequence[str], told: bytes, timeout_s: float, name: str) -> _Ended:
    """Run a command to its end; its process group is killed in every case."""
    try:
        process = await anyio.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env=needed_of(os.environ),
        )  # fmt: skip
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise DreamCheckFailed(f"{name} cannot be started: {why}") from error
    assert process.stdout is not None and process.stderr is not None
    said, complaint = bytearray(), bytearray()
    try:
        with anyio.move_on_after(timeout_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tell, process, told)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_take, process.stdout, said)
                    readers.start_soon(_take, process.stderr, complaint)
                    await process.wait()
                    _kill(process)  # processes that still hold the pipes were started by it
                    readers.cancel_scope.deadline = anyio.current_time() + PIPES_S
                tasks.cancel_scope.cancel()
        code = process.returncode
    finally:
        _kill(process)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if code is None:
        raise DreamCheckFailed(f"{name} took longer than {timeout_s:g} s and was killed")
    return _Ended(code, bytes(said), bytes(complaint))


async def _take(stream: ByteReceiveStream, kept: bytearray) -> None:
    async for chunk in stream:
        kept += chunk[: SAID_BYTES_MAX - len(kept)]


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _line(text: bytes) -> str:
    """One printable line."""
    decoded = " ".join(text.decode(errors="replace").split())
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in decoded[:REASON_MAX])
