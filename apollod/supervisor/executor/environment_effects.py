"""Groups of answers to an environment's prompts: the environment gives a prompt, the served model answers it several
times, the environment scores the answers, and their tokens and log-probabilities go to a file beside the journal."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from apollod.adapters.environments.atropos_service import AtroposService
from apollod.adapters.environments.http_environment import HttpEnvironment
from apollod.adapters.environments.python_environment import PythonEnvironment, Sampler, VerifiersEnvironment
from apollod.adapters.journal import blobs
from apollod.adapters.llm.client import HttpLlm, side_by_side
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import LIKELIEST, teacher_from
from apollod.adapters.llm.openai_api import Choice, Completion, Sampling, Versions
from apollod.adapters.tokens import difference, vocabulary_of
from apollod.core import effects as fx
from apollod.core import inputs as inp
from apollod.core.facts.environments import Stage
from apollod.core.facts.intake.inputs import Line
from apollod.core.facts.intake.repeats import content_id
from apollod.curation.redaction import redact_text
from apollod.curation.stripping import as_asked
from apollod.errors import ConfigError, EnvironmentFailed, RecordRefused
from apollod.model.kept import CHUNK
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import OWN_PRIORITY
from apollod.supervisor.executor.context import AnyEnvironment, Background, Context, Failure, Handler, answered
from apollod.supervisor.sections import EnvironmentSection
from apollod.wire.comparisons import GroupForm, GroupRecord, compared_json
from apollod.wire.engine_terms import OURS, PLAIN
from apollod.wire.records import Message, message_form
from apollod.wire.rollouts import Group, Rollout, advantages, check, rollout, write_group
from apollod.wire.teacher import digest_of


def environments_of(config: Config) -> dict[str, AnyEnvironment]:
    """The configured environments by name, none of them started. Blocking. Raises ConfigError."""
    for one in config.environment:
        if (teacher := config.endpoint_named(one.teacher)) is not None:
            ours, its = (Path(path).expanduser() for path in (config.model.path, teacher.tokenizer))
            if apart := difference(vocabulary_of(ours), vocabulary_of(its)):
                raise ConfigError(
                    f"{ours} and the teacher's tokenizer {its} have different vocabularies: {apart}",
                    "a teacher has to share the model's vocabulary; learn its answers by sft instead",
                )
    return {one.name: _environment(one, config) for one in config.environment}


def _environment(section: EnvironmentSection, config: Config) -> AnyEnvironment:
    match section.kind:
        case "python":
            return PythonEnvironment(
                section.entry, section.timeout_s, python=section.python, variables=section.variables
            )
        case "http":
            return HttpEnvironment(section.url, section.timeout_s, section.api_key)
        case "atropos":
            return AtroposService(section.url, section.group, _room(section, config.trainer.max_tokens))
        case "verifiers":
            return VerifiersEnvironment(
                section.entry, section.settings, _sampler(section, config), section.python, section.variables
            )


def _sampler(section: EnvironmentSection, config: Config) -> Sampler:
    """How an environment that runs rollouts by itself has them sampled: as `_answers` does."""
    key, priority = config.engine.api_key, priority_at(config, OWN_PRIORITY)
    fields = {
        "temperature": section.temperature, "top_p": 1.0, **PLAIN, "logprobs": 0, "return_token_ids": True,
        **({} if priority is None else {"priority": priority}),
    }  # fmt: skip
    engine = {
        "url": config.api_url, "model": config.engine.served_name, "fields": fields, "max_tokens": section.max_tokens,
        "headers": {OURS: "1", **({"Authorization": f"Bearer {key}"} if key else {})},
        "room": _room(section, config.trainer.max_tokens),
    }  # fmt: skip
    model = str(Path(config.model.path).expanduser().absolute())
    return Sampler(engine, model, section.group, section.timeout_s, section.temperature)


SHOWN_MAX = 200
"""characters of prompt and answer of a group that is not learned"""


async def keep_open(environments: Mapping[str, AnyEnvironment]) -> None:
    """Let processes and connections of environments live until cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await environment.close()


async def _sample(context: Context, effect: fx.SampleGroup) -> inp.Input:
    at: list[Stage] = ["prompt"]

    def failed(failure: Failure) -> inp.GroupNotScored:
        return inp.GroupNotScored(
            effect.environment, effect.number, effect.attempt, at[-1], failure.reason,
            for_good=failure.cause == "refused", outside=failure.cause == "endpoint",
            retry_after_s=failure.retry_after_s,
        )  # fmt: skip

    about = {"environment": effect.environment, "number": effect.number}
    return await answered(_sampled(context, effect, at), failed, "environment.broke", **about)


async def _sampled(context: Context, effect: fx.SampleGroup, at: list[Stage]) -> inp.GroupScored:
    """The group of a prompt; `at`: the stages so far. Raises EnvironmentFailed, RecordRefused, an LlmError, OSError."""
    section = next(one for one in context.config.environment if one.name == effect.environment)
    environment = context.environments[effect.environment]
    if isinstance(environment, AtroposService | VerifiersEnvironment):
        return await _taken(context, section, effect, environment, at)
    prompt = _canonical(await environment.prompt(effect.number))
    at.append("sample")
    began = time.monotonic()
    completion = await _answers(context, section, [as_asked(one) for one in prompt])
    sampled = time.monotonic()
    at.append("score")
    if section.objective == "distill":
        return await _distilled(context, section, effect, prompt, completion, sampled - began)
    scores = await environment.score(effect.number, prompt, [one.text for one in completion.choices])
    scored = time.monotonic()
    at.append("group")
    both = zip(completion.choices, scores, strict=True)
    pairs = [(one, score.value) for one, score in both if score.value is not None]
    if len(pairs) < 2:
        why = next((score.why for score in scores if score.why), "no reason given")
        raise EnvironmentFailed(
            section.name, f"scored {len(pairs)} of {len(scores)} answers ({why})", "a group needs at least two scores"
        )
    versions = completion.versions or Versions(-1, -1)
    group = inp.GroupScored(
        effect.environment, effect.number, tuple(value for _, value in pairs), versions.first, versions.last,
        sum(len(one.token_ids or ()) for one, _ in pairs), sampling_s=sampled - began, scoring_s=scored - sampled,
        left_out=len(scores) - len(pairs),
    )  # fmt: skip
    answers = [redact_text(one.text) for one, _ in pairs]
    if advantages(list(group.scores)) is None:
        return _flat(group, prompt[-1]["content"], answers[0])
    ids = completion.prompt_ids or ()
    rollouts = tuple(_rollout(ids, one, value, section.temperature, versions) for one, value in pairs)
    return await anyio.to_thread.run_sync(_kept, context, section, group, prompt, answers, rollouts)


async def _distilled(
    context: Context, section: EnvironmentSection, effect: fx.SampleGroup, prompt: list[dict[str, Any]],
    completion: Completion, sampling_s: float,
) -> inp.GroupScored:  # fmt: skip
    """The group of the model's answers with what the teacher says at each of their tokens. The score of an answer is
    the mean of log p(teacher) - log p(model) of its tokens: 0 where both say the same. Raises as `_sampled`."""
    teacher = context.config.endpoint_named(section.teacher)
    assert teacher is not None
    began, ids = time.monotonic(), completion.prompt_ids or ()
    endpoint = Endpoint(
        teacher.base_url, teacher.model, teacher.api_key, attempts=1, try_s=section.timeout_s,
        total_s=section.timeout_s * section.group, use_environment=True,
    )  # fmt: skip
    versions, start = completion.versions or Versions(-1, -1), len(ids)
    wholes = [[*ids, *(one.token_ids or ())] for one in completion.choices]
    async with HttpLlm(endpoint) as llm:
        scored = await side_by_side([partial(llm.score, whole, LIKELIEST) for whole in wholes])
    rollouts = list[Rollout]()
    for choice, scores, whole in zip(completion.choices, scored, wholes, strict=True):
        said, mu = teacher_from(scores, whole, start, LIKELIEST), choice.logprobs or ()
        own = scores.logprobs[start - 1 :]
        score = sum(its - ours for its, ours in zip(own, mu, strict=True)) / max(1, len(own))
        one = _rollout(ids, choice, score, section.temperature, versions)
        rollouts.append(replace(one, likeliest=said.ids.tobytes(), told=said.logprobs.tobytes()))
    group = inp.GroupScored(
        effect.environment, effect.number, tuple(one.score for one in rollouts), versions.first, versions.last,
        sum(sum(one.learned) for one in rollouts), sampling_s=sampling_s, scoring_s=time.monotonic() - began,
    )  # fmt: skip
    answers = [redact_text(one.text) for one in completion.choices]
    return await anyio.to_thread.run_sync(_kept, context, section, group, prompt, answers, tuple(rollouts))


async def _taken(
    context: Context, section: EnvironmentSection, effect: fx.SampleGroup,
    source: AtroposService | VerifiersEnvironment, at: list[Stage],
) -> inp.GroupScored:  # fmt: skip
    """A group of rollouts from an environment that has the model asked and scores by itself: a service's next one,
    whatever its number. Raises as `_sampled`."""
    assert context.dreamer is not None
    began, left_out = time.monotonic(), 0
    if isinstance(source, VerifiersEnvironment):
        at.append("sample")
        rollouts, left_out = await source.group(effect.number)
    else:
        rollouts = await source.next_group()
    at.append("group")
    learned = [sum(one.learned) for one in rollouts]
    first, last = min(one.versions[0] for one in rollouts), max(one.versions[1] for one in rollouts)
    group = inp.GroupScored(
        effect.environment, effect.number, tuple(one.score for one in rollouts), first, first if first < 0 else last,
        sum(learned), sampling_s=time.monotonic() - began, left_out=left_out,
    )  # fmt: skip
    check(Group(rollouts))
    begins = [one.learned.index(True) for one in rollouts]
    asked = redact_text(await context.dreamer.text_of(rollouts[0].tokens[: begins[0]]))
    both = zip(rollouts, begins, strict=True)
    said = [redact_text(await context.dreamer.text_of(one.tokens[begin:])) for one, begin in both]
    if advantages(list(group.scores)) is None:
        return _flat(group, asked, said[0])
    prompt = [{"role": "user", "content": asked}]
    kept = await anyio.to_thread.run_sync(_kept, context, section, group, prompt, said, rollouts)
    if kept.line is not None and await context.journal.known([kept.line.example]):
        return replace(kept, line=None, file="", reason="the same group came before")
    return kept


def _canonical(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in canonical form and without secrets, since they are stored. Raises RecordRefused."""
    forms = [message_form(one, f"message {place}") for place, one in enumerate(messages, 1)]
    return [{**form, "content": redact_text(form["content"])} for form in forms]


async def _answers(context: Context, section: EnvironmentSection, asked: Sequence[Mapping[str, Any]]) -> Completion:
    """The model's answers to a prompt, with token ids and log-probabilities, so short that they fit a step together.
    Raises RecordRefused for a prompt that leaves no room for them, and an LlmError."""
    assert context.dreamer is not None
    most = context.config.trainer.max_tokens
    each = _room(section, most)
    tokens = await context.dreamer.prompt_tokens(asked, section.thinking)
    if tokens >= each:
        raise RecordRefused(
            f"a prompt of {tokens} tokens leaves no room for answers: {section.group} rollouts of a group have {each} "
            f"tokens each ([trainer] max_tokens = {most})",
            "raise max_tokens, or ask for smaller groups ([[environment]] group)",
        )
    sampling = Sampling(
        n=section.group, max_tokens=min(section.max_tokens, each - tokens), temperature=section.temperature, top_p=1.0,
        logprobs=True, token_ids=True, thinking=section.thinking, extra=PLAIN,
    )  # fmt: skip
    return await context.dreamer.rollouts(asked, sampling)


def _flat(group: inp.GroupScored, asked: str, answer: str) -> inp.GroupScored:
    """A group from which nothing can be learned, with enough text to see why."""
    reason = f"all {len(group.scores)} answers have the score {group.scores[0]:g}"
    return replace(group, reason=reason, asked=asked[:SHOWN_MAX], answer=answer[:SHOWN_MAX])


def _room(section: EnvironmentSection, max_tokens: int) -> int:
    """Most tokens of each sequence of a group, so that all of them fit one step."""
    return max_tokens // section.group // CHUNK * CHUNK


def _rollout(prompt: Sequence[int], one: Choice, score: float, temperature: float, versions: Versions) -> Rollout:
    answer = list(one.token_ids or ())
    learned = [False] * len(prompt) + [True] * len(answer)
    return rollout([*prompt, *answer], learned, list(one.logprobs or ()), score, temperature, versions)


def _kept(
    context: Context, section: EnvironmentSection, group: inp.GroupScored, prompt: Sequence[Mapping[str, Any]],
    answers: list[str], rollouts: tuple[Rollout, ...],
) -> inp.GroupScored:  # fmt: skip
    """The group with its record, once its file is durable. A prompt that holds a probe is not learned. Blocking. Raises
    RecordRefused for rollouts that cannot be learned, OSError."""
    blob = write_group(Group(rollouts))
    digest = digest_of(blob)
    form = GroupForm(
        section.name, [msgspec.convert(one, Message) for one in prompt], answers, section.objective, digest,
        list(group.scores), section.terms,
    )  # fmt: skip
    record = compared_json(GroupRecord(form))
    leak = context.leaks.said_of([record])[0] if context.leaks is not None else ""
    if leak:
        return replace(group, reason=f"it holds {leak}, which measures nothing any more once this is learned")
    blobs.keep(context.config.state_dir / blobs.NAME, blob)
    return replace(group, line=Line(group.number, content_id(record), record), file=digest)


HANDLERS: dict[type[fx.Effect], Handler] = {fx.SampleGroup: Background(_sample)}
