"""Asks the probes of the configuration: those of the user's files, and those that come with apollod, by level of
difficulty: 1 is easy, 2 and 3 are hard enough to show a drop of larger models.

A released file of probes does not change, since baselines use its items: new ones come in a new file.
"""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from apollod.adapters.llm.client import HttpLlm, Llm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.probing import Judge as Verdict
from apollod.adapters.llm.probing import Terms, broken, check_schemas, measure, measure_baseline
from apollod.core.facts.judging.events import agreed, spokesman
from apollod.core.facts.quality.events import NO_JUDGE, NO_ROOM, NO_VERDICT
from apollod.core.facts.quality.inputs import ProbesAnswered
from apollod.core.facts.quality.looking import LESSONS, LessonCase, known, silent_groups
from apollod.core.kernel.reasons import one_line
from apollod.curation.formats.reader import BOM
from apollod.curation.probes.figures import Measurement, by_lesson, by_metric
from apollod.curation.probes.probe_item import Probe, digest, of_large_groups, sample
from apollod.curation.probes.probe_kinds import case_of, is_judged, kind_of, lesson_probes
from apollod.curation.probes.probe_lines import probe_set, read_probes
from apollod.curation.probes.references import Reference
from apollod.curation.redaction import redact_text
from apollod.errors import ConfigError, DreamCheckFailed, LlmError, RecordRefused
from apollod.explain import reason
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import answer_tokens
from apollod.supervisor.dreaming.tested_answers import Tester
from apollod.supervisor.judge import Judge
from apollod.wire.records import record_of

OWN_PRIORITY = 15
"""priority at our own engine: after users (0) and judge (10), before dreams (20)"""
AT_ONCE = 8
REQUEST_S = 120.0
ANSWER_MAX = 200
"""characters of an answer that are recorded"""
SURELY_SHORT = 2_000
"""bytes below which a conversation is asked without tokenising it first"""
TEMPLATE = 200
"""most tokens that a chat template adds to a conversation"""

BYTES_MAX = 64 << 20
"""most bytes of a file; far more than the largest set of probes needs"""

EASY, HARDER, DOCUMENTS = "probes.jsonl", "levels.jsonl", "documents.jsonl"
PLACE = "apollod/data/"
"""prefix of their places in messages"""
LEVELS = 3


def probes_of(config: Config) -> tuple[Probe, ...]:
    """All configured probes. Raises ConfigError for unusable files. Blocking."""
    found = shipped(config.quality.levels)
    names = config.quality.probe
    try:
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ConfigError(f"[quality] probe names {name} twice", "name it once")
            own = read_probes(lines_of(name), str(Path(name).expanduser()))
            if not own:
                raise ConfigError(f"[quality] probe {name} has no probe in it", "write one, or do not name the file")
            found += own
        probes = probe_set(found)
        check_schemas(probes)
    except RecordRefused as error:
        raise ConfigError(f"[quality] probe: {error}", error.hint) from error
    return probes


def probes_known(config: Config, baseline: str, contrasts: tuple[Probe, ...]) -> tuple[Probe, ...]:
    """All probes with `contrasts`, or the part with the digest `baseline`: levels added later, by an upgrade or the
    configuration, join with the next baseline. Raises ConfigError for unusable files. Blocking."""
    every = probes_of(config) + contrasts
    for level in range(config.quality.levels, 0, -1):
        fewer = tuple(probe for probe in every if level_of(probe) <= level)
        if digest(fewer) == baseline:
            return fewer
    return every


def is_persons(probe: Probe) -> bool:
    """True if it comes from the user's file; others come with apollod or belong to patterns, and cannot be edited."""
    return kind_of(probe).in_files and not is_shipped(probe)


class Prober:
    """Asks probes once; the core decides about retries."""

    def __init__(self, config: Config, judge: Judge | None = None) -> None:
        """`judge`: used if `[judge]` is on. Blocking."""
        engine = config.engine
        self._endpoint = Endpoint(
            config.api_url, engine.served_name, engine.api_key, AT_ONCE, attempts=1, try_s=REQUEST_S,
            total_s=REQUEST_S, ours=True,
        )  # fmt: skip
        priority = priority_at(config, OWN_PRIORITY)
        self._terms = Terms(contrast_tokens=answer_tokens(config), concurrency=AT_ONCE, priority=priority)
        self._settings = config.quality
        self._too_long: dict[str, str] = {}
        """by id, why the engine has no room for the probe"""
        self._unchecked: dict[str, str] = {}
        """by id, why the check of the contrast case could not be run"""
        self._contrast = contrast_by(Tester(config, judge), self._unchecked)
        self._judge = verdict_by(judge, config) if judge is not None and config.judge.mode != "off" else None

    async def baseline(
        self, number: int, probes: tuple[Probe, ...], tries: bool = False
    ) -> tuple[ProbesAnswered, Mapping[str, Reference]]:
        """Ask all probes, and return the references for later looks. `tries`: of a large group ask a few first, and the
        others only if the model passes enough for a look to be informative, since failures take long. Raises
        ProbesBroken if the endpoint goes away."""
        runs, references = list[Measurement](), dict[str, Reference]()
        async with HttpLlm(self._endpoint) as llm:
            fitting = await self._fitting(llm, probes)
            for asked in (of_large_groups(fitting), fitting) if tries else (fitting,):
                figures = [one for run in runs for one in run.figures]
                before, silent = {one.id for one in figures}, silent_groups(known(by_metric(figures)), self._settings)
                rest = tuple(one for one in asked if one.id not in before and one.group not in silent)
                run, own = await measure_baseline(llm, rest, self._terms, self._judge, self._contrast)
                runs.append(run)
                references |= own
        return self._answered(number, probes, runs), references

    async def look(
        self, number: int, probes: tuple[Probe, ...], share: float, references: Mapping[str, Reference],
        lessons: tuple[LessonCase, ...] = (),
    ) -> ProbesAnswered:  # fmt: skip
        """Ask this share of each group, a different part for each number, compared with `references`, and all of
        `lessons`. Raises ProbesBroken."""
        asked = sample(probes, share, number)
        async with HttpLlm(self._endpoint) as llm:
            every = (*await self._fitting(llm, asked), *lesson_probes(lessons))
            found = await measure(llm, every, self._terms, references, self._judge, self._contrast)
        return self._answered(number, probes, [found], len(asked) / len(probes))

    async def _fitting(self, llm: Llm, probes: tuple[Probe, ...]) -> tuple[Probe, ...]:
        """Probes whose conversation and answer the engine has room for; the others go to `_too_long`. A short text has
        at most as many tokens as bytes, besides those of the template. Raises ProbesBroken."""
        try:
            return await self._with_room(llm, probes)
        except LlmError as error:
            raise broken(error, 0, len(probes)) from error

    async def _with_room(self, llm: Llm, probes: tuple[Probe, ...]) -> tuple[Probe, ...]:
        sizes = {probe.id: sum(len(one["content"].encode()) for one in probe.messages) for probe in probes}
        if max(sizes.values()) < SURELY_SHORT:
            return probes
        takes = (await llm.tokenise("x")).max_model_len
        for probe in probes:
            if SURELY_SHORT <= sizes[probe.id] and takes < sizes[probe.id] + TEMPLATE + self._terms.max_tokens:
                prompt = await llm.tokenise(probe.messages, probe.tools, thinking="off")
                if len(prompt.tokens) + self._terms.max_tokens > takes:
                    self._too_long[probe.id] = f"the engine takes {takes} tokens"
        return tuple(probe for probe in probes if probe.id not in self._too_long)

    def _answered(
        self, number: int, probes: tuple[Probe, ...], runs: Sequence[Measurement], share: float = 1.0
    ) -> ProbesAnswered:  # fmt: skip
        """The answer for the whole set, also if only a part was asked."""
        left_out = {probe.id: NO_JUDGE for probe in probes if is_judged(probe) and self._judge is None}
        left_out |= {id_: NO_VERDICT + why for id_, why in self._unchecked.items()}
        left_out |= {id_: NO_ROOM + why for id_, why in self._too_long.items()}
        found = [one for run in runs for one in run.figures]
        by_group = by_metric([one for one in found if one.id not in self._unchecked])
        if lessons := by_lesson(found):
            by_group[LESSONS] = lessons
        saw = [run for run in runs if run.figures] or runs  # a run without figures saw no weights
        return ProbesAnswered(
            number, digest(probes), by_group, min(run.first_version for run in saw),
            max(run.last_version for run in saw), sum(run.prompt_tokens + run.completion_tokens for run in runs),
            sum(run.seconds for run in runs), left_out=left_out, share=share,
            answers={one.id: one_line(redact_text(one.answer), ANSWER_MAX) for one in found if one.answer},
        )  # fmt: skip


def verdict_by(judge: Judge, config: Config) -> Verdict:
    """A verdict by the judge: good if all votes are. It sees the expectation, then the conversation with the answer. If
    its endpoint is gone, LlmUnreachable is raised, as for ours."""

    async def verdict(probe: Probe, answer: str) -> tuple[bool, str]:
        if not answer.strip():
            return False, "the answer is empty"
        own = [one["content"] for one in probe.messages if one["role"] == "system"]
        expected = "\n\n".join([*own, f"A good answer: {probe.expect}"])
        turns = [one for one in probe.messages if one["role"] != "system"]
        before = [{**one, "weight": 0} if one["role"] == "assistant" else one for one in turns]
        messages = [{"role": "system", "content": expected}, *before, {"role": "assistant", "content": answer}]
        judged = await judge.ask(
            record_of({"messages": messages}).canonical, config.judge.votes, config.judge.temperature
        )
        return agreed(judged.votes) == "good", spokesman(judged.votes).reason

    return verdict


def contrast_by(tester: Tester, unchecked: dict[str, str]) -> Verdict:
    """A verdict like that of a pattern's tests. A check that cannot be run is not the model's fault and must not cause
    an alarm: its case goes to `unchecked`, and is left out of the measurement."""

    async def verdict(probe: Probe, answer: str) -> tuple[bool, str]:
        check, text, scenario = case_of(probe)
        try:
            found = await tester.tested(check, "contrast", text, scenario, redact_text(answer))
        except DreamCheckFailed as error:
            unchecked[probe.id] = redact_text(str(error))
            raise
        return found.verdict == "good", found.reason

    return verdict


def lines_of(name: str) -> list[bytes]:
    """The lines of a file of the configuration. Raises ConfigError. Blocking, and never waits for a pipe."""
    try:
        path = Path(name).expanduser()
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(
                    f"[quality] probe {path} is no file (its mode is {stat.filemode(status.st_mode)})",
                    "name a file with one probe a line",
                )
            if status.st_size > BYTES_MAX:
                raise ConfigError(
                    f"[quality] probe {path} has {status.st_size} bytes, more than {BYTES_MAX}",
                    "name a file with one probe a line",
                )
            return file.read(BYTES_MAX).removeprefix(BOM).splitlines()
    except OSError as error:
        raise ConfigError(f"[quality] probe {name} cannot be read: {reason(error)}", "check path and owner") from error
    except (ValueError, RuntimeError) as error:  # a zero byte in it, or an unknown user's home
        raise ConfigError(f"[quality] probe {name!r} is no path: {error}", "check it") from error


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def shipped(level: int) -> list[Probe]:
    """Probes that ship, up to this level (0: none). Blocking."""
    found = _read(EASY) if level >= 1 else []
    if level < 2:
        return found
    texts = {one["name"]: one["text"] for one in map(json.loads, _lines(DOCUMENTS))}
    return found + [_with_text(probe, texts) for probe in _read(HARDER) if level_of(probe) <= level]


def is_shipped(probe: Probe) -> bool:
    """True if it comes with apollod."""
    return probe.place.rpartition(":")[0] in (PLACE + EASY, PLACE + HARDER)


def level_of(probe: Probe) -> int:
    """Its level; the group name ends with it if it is above 1."""
    return int(probe.group.rpartition("-")[2]) if probe.place.startswith(PLACE + HARDER) else 1


def _with_text(probe: Probe, texts: dict[str, str]) -> Probe:
    """Insert the long text that a question is about: the file stores it once, and the system prompt of the question
    names it."""
    first, *others = probe.messages
    if first["role"] != "system":
        return probe
    return msgspec.structs.replace(probe, messages=({**first, "content": texts[first["content"]]}, *others))


def _read(name: str) -> list[Probe]:
    return read_probes(_lines(name), PLACE + name)


def _lines(name: str) -> list[bytes]:
    return (files("apollod") / "data" / name).read_bytes().splitlines()
