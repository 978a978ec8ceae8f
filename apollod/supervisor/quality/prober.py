"""Asks the probes of the configuration: those that come with apollod, and those of a person's files."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.probing import Judge as Verdict
from apollod.adapters.llm.probing import Terms, check_schemas, measure, measure_baseline
from apollod.core.judging.votes import agreed, spokesman
from apollod.core.quality.events import NO_JUDGE, NO_VERDICT
from apollod.core.quality.inputs import ProbesAnswered
from apollod.core.quality.lesson_group import LESSONS, LessonCase
from apollod.curation.probes.contrast_probes import case_of
from apollod.curation.probes.lesson_probes import by_lesson, lesson_probes
from apollod.curation.probes.measured import Measurement, by_metric
from apollod.curation.probes.probe_lines import Probe, digest, probe_set, read_probes
from apollod.curation.probes.references import Reference
from apollod.curation.probes.stratified import sample
from apollod.curation.redaction import redact_text
from apollod.errors import ConfigError, DreamCheckFailed, RecordRefused
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import answer_tokens
from apollod.supervisor.dreaming.tested_answers import Tester
from apollod.supervisor.judge import Judge
from apollod.supervisor.quality.probe_files import lines_of
from apollod.wire.records import record_of

SHIPPED = "probes.jsonl"
SHIPPED_PLACE = f"apollod/data/{SHIPPED}"
"""as messages name it"""
OWN_PRIORITY = 15
"""at our own engine: after users (0) and judge (10), before dreams (20)"""
AT_ONCE = 8
REQUEST_S = 120.0


def probes_of(config: Config) -> tuple[Probe, ...]:
    """All that is asked. Raises ConfigError for files that cannot be used. Blocking."""
    shipped = (files("apollod") / "data" / SHIPPED).read_bytes()
    found = read_probes(shipped.splitlines(), SHIPPED_PLACE)
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


def is_persons(probe: Probe) -> bool:
    """True if it is of a person's file; others come with apollod, or are of patterns, and nobody can edit them."""
    return probe.kind != "contrast" and not is_shipped(probe)


def is_shipped(probe: Probe) -> bool:
    """True if it comes with apollod."""
    return probe.place.rpartition(":")[0] == SHIPPED_PLACE


class Prober:
    """Asks probes, once; whoever asks again is the core."""

    def __init__(self, config: Config, judge: Judge | None = None) -> None:
        """`judge`: asked where `[judge]` is on. Blocking."""
        engine = config.engine
        self._endpoint = Endpoint(
            config.api_url, engine.served_name, engine.api_key, AT_ONCE, attempts=1, try_s=REQUEST_S,
            total_s=REQUEST_S, ours=True,
        )  # fmt: skip
        priority = OWN_PRIORITY if serves_by_priority(config) else None
        self._terms = Terms(contrast_tokens=answer_tokens(config), concurrency=AT_ONCE, priority=priority)
        self._unchecked: dict[str, str] = {}
        """contrast cases whose check could not be run, by id: why"""
        self._contrast = contrast_by(Tester(config, judge), self._unchecked)
        self._judge = verdict_by(judge, config) if judge is not None and config.judge.mode != "off" else None

    async def baseline(
        self, number: int, probes: tuple[Probe, ...]
    ) -> tuple[ProbesAnswered, Mapping[str, Reference]]:  # fmt: skip
        """All of them, and what later looks are compared with. Raises ProbesBroken for an endpoint that goes away."""
        async with HttpLlm(self._endpoint) as llm:
            found, references = await measure_baseline(llm, probes, self._terms, self._judge, self._contrast)
        return self._answered(number, probes, found), references

    async def look(
        self, number: int, probes: tuple[Probe, ...], share: float, references: Mapping[str, Reference],
        lessons: tuple[LessonCase, ...] = (),
    ) -> ProbesAnswered:  # fmt: skip
        """This share of each group, others at each number, compared with `references`, and all of `lessons`. Raises
        ProbesBroken."""
        asked = sample(probes, share, number)
        async with HttpLlm(self._endpoint) as llm:
            every = (*asked, *lesson_probes(lessons))
            found = await measure(llm, every, self._terms, references, self._judge, self._contrast)
        return self._answered(number, probes, found, len(asked) / len(probes))

    def _answered(
        self, number: int, probes: tuple[Probe, ...], found: Measurement, share: float = 1.0
    ) -> ProbesAnswered:  # fmt: skip
        """Of the whole set, however few of them were asked."""
        left_out = {probe.id: NO_JUDGE for probe in probes if probe.judged and self._judge is None}
        left_out |= {id_: NO_VERDICT + why for id_, why in self._unchecked.items()}
        figures = [one for one in found.figures if one.id not in self._unchecked and one.kind != "lesson"]
        by_group = by_metric(figures)
        if lessons := by_lesson(found.figures):
            by_group[LESSONS] = lessons
        return ProbesAnswered(
            number, digest(probes), by_group, found.first_version, found.last_version,
            found.prompt_tokens + found.completion_tokens, found.seconds, left_out=left_out, share=share,
        )  # fmt: skip


def verdict_by(judge: Judge, config: Config) -> Verdict:
    """Good is what all votes call good: the answer in its conversation, before which stands what is expected of it. An
    endpoint of the judge that is gone is an LlmUnreachable, as one of ours is."""

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
    """As tests of the pattern are judged. A check that cannot be run says nothing of the model and is no reason for an
    alarm: its case goes to `unchecked`, and out of the measurement."""

    async def verdict(probe: Probe, answer: str) -> tuple[bool, str]:
        check, text, scenario = case_of(probe)
        try:
            found = await tester.tested(check, "contrast", text, scenario, redact_text(answer))
        except DreamCheckFailed as error:
            unchecked[probe.id] = redact_text(str(error))
            raise
        return found.verdict == "good", found.reason

    return verdict
