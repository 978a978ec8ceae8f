"""Recognises results of tool calls: checks that passed or failed, calls that failed, and repeated calls that then
worked."""

from collections.abc import Iterable
from typing import NamedTuple

from apollod.curation.conversation import Moment, Said
from apollod.curation.signals.check_commands import NONE, Check, check_in, command_of
from apollod.curation.signals.check_outputs import exit_code, outcome
from apollod.curation.signals.flag import Call, Flag, call_of, ids, quoted

ALIKE = 0.5  # share of the shorter command's words that the other one has, too


TELL_FAILURES = frozenset({"claude-code", "pi"})
"""Agents whose logs mark each failed command, so that silence means success; others write the exit code of each, or
nothing"""


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
