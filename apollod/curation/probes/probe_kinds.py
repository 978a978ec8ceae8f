"""The kinds of probes: how the line of each in a file is read, how it is asked, how an answer is checked, and where its
figures count. To add one, write a class and a line in `KINDS`, and its name in `probe_item.Kind`."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import re2  # type: ignore[import-untyped]

from apollod.core.facts.dreams.held_out_rounds import ContrastCase
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.facts.quality.looking import GROUP, LessonCase
from apollod.core.settings import Check
from apollod.curation.lessons.matching import matches, tokens_of
from apollod.curation.probes.probe_item import Call, Kind, Probe
from apollod.errors import RecordRefused

_block = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL).findall
_function = re.compile(r"<function=([^>\n]+)>\s*(.*?)\s*(?:</function>|$)", re.DOTALL).findall
_parameter = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?(?:</parameter>|$)", re.DOTALL).findall
_fence = re.compile(r"\s*```[\w-]*\n(.*?)\n?\s*```\s*", re.DOTALL).fullmatch
_QUIETLY = re2.Options()
_QUIETLY.log_errors = False
_AS_JSON = {"True": "true", "False": "false", "None": "null"}
_marks = re.compile(r"\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>)")


class Called(NamedTuple):
    """A call. `arguments`: None if they are not a JSON object."""

    name: str
    arguments: dict[str, Any] | None


def without_fence(text: str) -> str:
    """The text inside of a code fence around the whole answer, or the answer."""
    found = _fence(text)
    return found[1] if found else text.strip()


def calls_of(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Called]:
    """All calls in an answer. Values of the XML form are text; the schemas in `tools` tell which ones to parse."""
    found: list[Called] = []
    for block in _block(text) or [text]:
        functions = _function(block)
        found += [Called(name.strip(), _parameters(name.strip(), body, tools)) for name, body in functions]
        if not functions:
            found += _of_json(block, tagged="<tool_call>" in text)
    return found


def _of_json(block: str, tagged: bool) -> list[Called]:
    """The calls in a block: everything inside tags; outside of them, objects with name and arguments."""
    try:
        value = json.loads(without_fence(_marks.sub("", block, count=1)))
    except (ValueError, RecursionError):
        return [Called("", None)] if tagged else []
    found = []
    for one in value if isinstance(value, list) else [value]:
        call = one.get("function", one) if isinstance(one, dict) else None
        if not isinstance(call, dict):
            call = one if isinstance(one, dict) and isinstance(one.get("name"), str) else {}
        given = call.get("arguments", call.get("parameters"))
        name = call.get("name")
        if isinstance(name, str) and (given is not None or tagged):
            found.append(Called(name, given if isinstance(given, dict) else None))
        elif tagged:
            found.append(Called("", None))
    return found


def _parameters(name: str, body: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    properties = next((_properties(tool) for tool in tools if tool["function"]["name"] == name), {})
    return {key.strip(): _value(text, properties.get(key.strip())) for key, text in _parameter(body)}


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found = tool["function"].get("parameters", {}).get("properties", {})
    return found if isinstance(found, dict) else {}


def _value(text: str, schema: Any) -> Any:
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if kind == "string":
        return text
    text = _AS_JSON.get(text, text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


ALTERNATIVES_MAX = 50
OF_PATTERNS = "contrast/"
"""prefix of groups and ids of contrast probes"""


class Unchecked(NamedTuple):
    """A check by code that may take long, and so is done apart."""

    kind: Literal["regex", "schema"]
    expected: Any
    answer: str


class Verdict(NamedTuple):
    """`why`: the reason if it did not pass; `unchecked`: what it has to pass besides."""

    passed: bool
    why: str = ""
    unchecked: tuple[Unchecked, ...] = ()


class ProbeKind:
    """A kind of probe. The defaults are those of a question to which code knows the answer."""

    name: ClassVar[Kind]
    fields: ClassVar[frozenset[str]] = frozenset({"messages", "expect"})
    """fields of its line in a file besides kind, id and group"""
    in_files: ClassVar[bool] = True
    """false for probes that are made of something else than a file"""
    scored: ClassVar[bool] = False
    """its text is scored (`GROUP.loss`); else it is asked, and its answer passes or not (`GROUP.passed`)"""
    decided_by: ClassVar[Literal["code", "judge", "contrast"]] = "code"
    """`code`: see `verdict`"""
    whole: ClassVar[bool] = False
    """an answer that was cut off does not pass"""
    by_group: ClassVar[bool] = True
    """its figures are compared with the baseline by group (`figures.by_metric`)"""
    leak_min: ClassVar[int] = 0
    """words from which on an example with its own words leaks it"""
    leak_nearly: ClassVar[bool] = True
    """an example with nearly the same words leaks it, too"""

    def expected(self, value: Any) -> Any:
        """The value of `Probe.expect` from that in a file. Raises RecordRefused."""
        raise NotImplementedError

    def check(self, probe: Probe) -> None:
        """Raises RecordRefused for a probe of a file whose fields do not fit each other."""

    def judged(self, probe: Probe) -> bool:
        """True if a judge decides whether an answer passes."""
        return self.decided_by == "judge"

    def answers(self, probe: Probe) -> tuple[str, ...]:
        """Answers that the probe names."""
        return probe.expect if isinstance(probe.expect, tuple) else ()

    def schemas(self, probe: Probe) -> list[Any]:
        """Schemas that it holds."""
        return []

    def tokens(self, probe: Probe, usual: int, contrast: int) -> int:
        """Token limit of an answer. `usual`, `contrast`: those of most answers and of answers to contrast cases."""
        return usual

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        """The verdict on an answer, where code decides."""
        raise NotImplementedError

    def deciding(self, probe: Probe, answer: str) -> tuple[int, int]:
        """The characters, from and to, by which an answer passes; (0, 0): all."""
        return 0, 0


class Text(ProbeKind):
    """A text whose log-probability is measured."""

    name = "text"
    fields = frozenset({"text"})
    scored = True


class Exact(ProbeKind):
    """`expect`: all right answers, compared after normalisation (`plain`)."""

    name = "exact"

    def expected(self, value: Any) -> tuple[str, ...]:
        found = value if isinstance(value, list) else [value]
        if not 0 < len(found) <= ALTERNATIVES_MAX or not all(isinstance(one, str) and plain(one) for one in found):
            raise RecordRefused("its expect is neither a text nor a list of texts", "give the answers that are right")
        return tuple(found)

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        expected = self.answers(probe)
        return Verdict(is_exactly(answer, expected), f"it is not {expected[0]!r:.80}")


def plain(answer: str) -> str:
    """An answer normalised for `exact`: without case, quotes and emphasis around it, a full stop or exclamation mark at
    its end, and with single spaces."""
    text = " ".join(answer.casefold().replace("\u2019", "'").split())
    return text.strip("\"'`*_\u201c\u201d").rstrip(".!").strip("\"'`*_\u201c\u201d ")


def is_exactly(answer: str, expected: Sequence[str]) -> bool:
    """True if the answer equals one of these, after normalisation."""
    return plain(answer) in map(plain, expected)


class Regex(ProbeKind):
    """`expect`: a pattern to find in the answer."""

    name = "regex"

    def expected(self, value: Any) -> str:
        pattern = _nonempty(value, "give a pattern")
        try:
            found = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise RecordRefused(f"{pattern[:60]!r} is no regular expression: {error}", "mend it") from error
        if found.search(""):
            raise RecordRefused(f"{pattern[:60]!r} matches an answer that is empty", "expect something")
        return pattern

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        return Verdict(True, unchecked=(Unchecked("regex", probe.expect, answer),))

    def deciding(self, probe: Probe, answer: str) -> tuple[int, int]:
        """The first match; of a pattern that RE2, which takes linear time, does not know, the whole answer."""
        assert isinstance(probe.expect, str)
        try:
            found = re2.compile(probe.expect, _QUIETLY).search(answer)
        except re2.error:
            return 0, 0
        return found.span() if found else (0, 0)


class Schema(ProbeKind):
    """`expect`: a JSON schema for the answer. A validator elsewhere checks whether it is valid."""

    name = "schema"

    def expected(self, value: Any) -> dict[str, Any] | bool:
        if not isinstance(value, dict | bool):
            raise RecordRefused("its expect is no JSON schema", "give an object")
        return value

    def schemas(self, probe: Probe) -> list[Any]:
        return [probe.expect]

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        return Verdict(True, unchecked=(Unchecked("schema", probe.expect, without_fence(answer)),))


class Judged(ProbeKind):
    """`expect`: a description of a good answer."""

    name = "judge"
    decided_by = "judge"

    def expected(self, value: Any) -> str:
        return _nonempty(value, "say what a good answer does")


class Tool(ProbeKind):
    """`expect`: a `Call`."""

    name = "tool"
    fields = frozenset({"messages", "tools", "expect"})

    def expected(self, value: Any) -> Call:
        try:
            return msgspec.convert(value, Call)
        except msgspec.ValidationError as error:
            raise RecordRefused(f"its expect is not a call: {error}", 'give {"call": NAME or null}') from error

    def check(self, probe: Probe) -> None:
        expected, names = _call(probe), [tool["function"]["name"] for tool in probe.tools]
        if expected.call is not None and expected.call not in names:
            raise RecordRefused(f"it expects a call of {expected.call!r}, which is none of its tools", "add the tool")
        if len(set(names)) < len(names):
            raise RecordRefused("two of its tools have one name", "rename one of them")

    def schemas(self, probe: Probe) -> list[Any]:
        """Schemas for the arguments of the call."""
        expected = _call(probe)
        if expected.call is None:
            return []
        functions = (tool["function"] for tool in probe.tools)
        own = next(one.get("parameters", True) for one in functions if one["name"] == expected.call)
        return [own, {"type": "object"} if expected.arguments is True else expected.arguments]

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        expected, calls = _call(probe), calls_of(answer, probe.tools)
        if expected.call is None or [call.name for call in calls] != [expected.call]:
            names = ", ".join(call.name or "what is no call" for call in calls) or "nothing"
            return Verdict(not calls and expected.call is None, f"it calls {names}")
        arguments = json.dumps(calls[0].arguments)
        return Verdict(True, unchecked=tuple(Unchecked("schema", one, arguments) for one in self.schemas(probe)))


def _call(probe: Probe) -> Call:
    assert isinstance(probe.expect, Call)
    return probe.expect


class Contrast(ProbeKind):
    """A contrast case of a pattern: a held-out scenario after a text that rules the behaviour out. `expect`: the
    pattern's check, which must not pass."""

    name = "contrast"
    in_files = False
    decided_by = "contrast"
    whole = True
    leak_min, leak_nearly = 8, False

    def judged(self, probe: Probe) -> bool:
        return isinstance(probe.expect, Check) and not probe.expect.by_code

    def tokens(self, probe: Probe, usual: int, contrast: int) -> int:
        return contrast


def contrast_probes(cases: Iterable[ContrastCase]) -> tuple[Probe, ...]:
    """The cases as probes, in order, in a group for each pattern. An id consists of the pattern, the scenario's dream,
    and a number."""
    of_scenario = Counter[tuple[str, str]]()
    found = []
    for case in cases:
        of_scenario[case.pattern, case.dream] += 1
        group = OF_PATTERNS + case.pattern
        turns = [{"role": turn.role, "content": turn.content} for turn in case.scenario]
        found.append(
            Probe(
                id=f"{group}/{case.dream}.{of_scenario[case.pattern, case.dream]}", group=group, kind="contrast",
                messages=({"role": "system", "content": case.text}, *turns), expect=case.check,
                place=f"held-out scenario {case.dream} of the pattern {case.pattern}",
            )
        )  # fmt: skip
    return tuple(found)


def case_of(probe: Probe) -> tuple[Check, str, tuple[Turn, ...]]:
    """The check, the text and the scenario of a contrast probe."""
    assert isinstance(probe.expect, Check)
    text, *turns = probe.messages
    return probe.expect, text["content"], tuple(Turn(one["role"], one["content"]) for one in turns)


class Lesson(ProbeKind):
    """A held-out wording of a known lesson, asked without the fact. `expect`: the right answer, followed by answers
    that are wrong now."""

    name = "lesson"
    in_files = False
    by_group = False

    def tokens(self, probe: Probe, usual: int, contrast: int) -> int:
        return tokens_of(self.answers(probe)[0])

    def verdict(self, probe: Probe, answer: str) -> Verdict:
        right, *wrong = self.answers(probe)
        return Verdict(matches(right, answer, wrong), "it does not say what was taught")


def lesson_probes(cases: Iterable[LessonCase]) -> tuple[Probe, ...]:
    """One probe for each held-out wording; ids are `lessons/LESSON/NUMBER`."""
    return tuple(
        Probe(
            id=f"{GROUP}/{case.lesson}/{number}", group=GROUP, kind="lesson",
            messages=({"role": "user", "content": wording.prompt},), expect=(wording.answer, *case.not_these),
            place=f"lesson {case.lesson}",
        )
        for case in cases
        for number, wording in enumerate(case.wordings)
    )  # fmt: skip


KINDS: Mapping[Kind, ProbeKind] = {
    kind.name: kind for kind in (Text(), Exact(), Regex(), Schema(), Judged(), Tool(), Contrast(), Lesson())
}


def kind_of(probe: Probe) -> ProbeKind:
    """The kind of a probe."""
    return KINDS[probe.kind]


def is_judged(probe: Probe) -> bool:
    """True if a judge decides whether an answer passes."""
    return kind_of(probe).judged(probe)


def _nonempty(value: Any, hint: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RecordRefused("its expect is not a text", hint)
    return value
