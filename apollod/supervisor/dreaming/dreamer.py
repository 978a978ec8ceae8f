"""Asks the models of dreams: the endpoint of `[dream]`, which imagines, and the served model, which answers, in a
surrounding that fits. Also used by lessons."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import structlog
from msgspec.structs import replace

from apollod.adapters.journal.examples import own_records
from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import teacher_of
from apollod.adapters.llm.openai_api import Completion, Sampling
from apollod.core import effects as fx
from apollod.core.facts.dreams.scenario import Turn
from apollod.core.rules.dreams.policy import SIDE_BY_SIDE
from apollod.core.settings import PatternSettings, Thinking
from apollod.core.surroundings import JOINT, NOTHING, Surrounding, SurroundingKind, SurroundingUse, in_place_of
from apollod.curation.dreaming.imagination import SCHEMA, imagining, scenario_of
from apollod.curation.redaction import redact_text
from apollod.curation.stripping import as_asked
from apollod.curation.surrounding_texts import CHARACTERS_MAX, conversation_in, own_surroundings, shipped
from apollod.errors import DreamCut, JournalError, LlmRefused
from apollod.model.config_facts import context_length
from apollod.model.engine_memory import asked_length
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.config import Config
from apollod.wire.engine_terms import ROLLOUT_PRIORITY
from apollod.wire.teacher import Teacher

log = structlog.get_logger()

OWN_PRIORITY = ROLLOUT_PRIORITY
"""priority at our own engine: after users (0) and judge (10)"""

ANSWER_TEMPERATURE = 0.7
"""sampling temperature of answers to learn; tests do not use it"""

UNKNOWN = 1 << 20
"""tokens of context assumed if the length is not known"""

CHARACTERS_EACH = 3
"""characters assumed for a token, so that a text cut to the model's room probably fits"""


class Imagined(NamedTuple):
    """A scenario, and the tokens used."""

    scenario: tuple[Turn, ...]
    tokens: int


class Answered(NamedTuple):
    """An answer, and the thought before it. `logprob`: mean natural log-probability of its tokens, None after a
    thought; `tokens`: of prompt, thought and answer; `cut`: it was cut off."""

    text: str
    logprob: float | None
    weights_version: int | None
    tokens: int
    cut: bool = False
    thought: str = ""


class Dreamer:
    """Asks once; the core decides about retries.

    Our own engine gets no seed: on a CPU, vLLM 0.32 crashes on a request with a seed whose prompt is processed in
    chunks ("CPU Generator does not use offset"), as with a long surrounding."""

    def __init__(self, config: Config) -> None:
        section, engine = config.dream, config.engine

        def asked(url: str, model: str, key: str, at_once: int = 1) -> HttpLlm:
            limit_s = section.timeout_s * at_once  # parallel calls share the engine
            ours = config.is_own(url)
            return HttpLlm(Endpoint(url, model, key, at_once, attempts=1, try_s=limit_s, total_s=limit_s, ours=ours))

        self._priority = priority_at(config, OWN_PRIORITY)
        self._own = asked(config.api_url, engine.served_name, engine.api_key, SIDE_BY_SIDE)
        elsewhere = config.endpoint_named(section.endpoint)
        self._imagines_here = elsewhere is None or config.is_own(elsewhere.base_url)
        self._imagination = asked(elsewhere.base_url, elsewhere.model, elsewhere.api_key) if elsewhere else self._own
        self.has_imagination = elsewhere is not None
        self._section = section
        self.answer_tokens = answer_tokens(config)
        self.room = min(_context(config) or UNKNOWN, config.trainer.max_tokens) - self.answer_tokens
        """tokens before an answer, at most, so that it can be given and learned with all of them"""
        self.room -= 0 if section.thinking == "off" else min(self.answer_tokens, self.room // 2)
        self.model = elsewhere.model if elsewhere else engine.served_name

    async def imagine(
        self,
        instruction: str,
        seeds: Sequence[str],
        unlike: Sequence[tuple[Turn, ...]],
        variation_of: tuple[Turn, ...],
        seed: int,
        wrong: bool = False,
    ) -> Imagined:
        """Imagine a scenario; `wrong`: one in which the behaviour would be wrong. Raises an LlmError, DreamNonsense,
        and DreamCut."""
        said = await self.imagine_text(imagining(instruction, seeds, unlike, variation_of, wrong), seed, SCHEMA)
        if said.cut:
            raise DreamCut("the scenario", self._section.max_tokens, "[dream] max_tokens")
        scenario = tuple(Turn(turn.role, redact_text(turn.content)) for turn in scenario_of(said.text))
        return Imagined(scenario, said.tokens)

    async def imagine_text(
        self, asked: Sequence[Mapping[str, Any]], seed: int, schema: Mapping[str, Any] | None = None
    ) -> Answered:
        """The raw answer of the imagination to these messages. Raises an LlmError."""
        sampling = Sampling(
            max_tokens=self._section.max_tokens, temperature=self._section.temperature, schema=schema,
            thinking=self._section.thinking if self._imagines_here else None,
            seed=None if self._imagines_here else seed,
            priority=self._priority if self._imagines_here else None,
        )  # fmt: skip
        answer = await self._imagination.complete(asked, sampling)
        said, tokens = answer.choices[0], answer.prompt_tokens + answer.completion_tokens
        return Answered(said.text, None, None, tokens, said.cut)

    async def answer(
        self, told: str, scenario: Sequence[Turn], temperature: float, around: Surrounding = NOTHING,
        top_p: float | None = None, whole: bool = True,
    ) -> Answered:  # fmt: skip
        """The served model's answer with the `told` text (empty: none) in a surrounding. Raises an LlmError, and
        DreamCut if it is cut off although a `whole` one is wanted."""
        sampling = Sampling(
            max_tokens=self.answer_tokens, temperature=temperature, top_p=top_p, logprobs=True,
            thinking=self._section.thinking,
        )  # fmt: skip
        answer = await self.say(told, scenario, sampling, around)
        if whole and answer.cut:
            raise DreamCut("the answer", self.answer_tokens, "[dream] answer_tokens")
        return answer

    async def say(
        self, told: str, scenario: Sequence[Turn], sampling: Sampling, around: Surrounding = NOTHING
    ) -> Answered:
        """Like `answer`, but returns the text so far if it is cut off. Raises an LlmError."""
        extra = {**sampling.extra, **({"tools": list(around.tools), "tool_choice": "none"} if around.tools else {})}
        asked = replace(sampling, priority=self._priority, extra=extra)
        answer = await self._own.complete(_request(around, told, scenario), asked)
        said = answer.choices[0]
        logprobs = () if said.reasoning else said.logprobs or ()
        return Answered(
            redact_text(said.text), sum(logprobs) / len(logprobs) if logprobs else None,
            answer.versions.last if answer.versions is not None else None,
            answer.prompt_tokens + answer.completion_tokens, said.cut,
            "" if said.unfinished else redact_text(said.reasoning),
        )  # fmt: skip

    async def rollouts(self, asked: Sequence[Mapping[str, Any]], sampling: Sampling) -> Completion:
        """The served model's answers to these messages, as `sampling` asks for them, after users' requests. Raises an
        LlmError."""
        return await self._own.complete(asked, replace(sampling, priority=self._priority))

    async def prompt_tokens(self, asked: Sequence[Mapping[str, Any]], thinking: Thinking) -> int:
        """Number of tokens of these messages for the served model. Raises an LlmError."""
        return len((await self._own.tokenise(asked, thinking=thinking)).tokens)

    async def text_of(self, ids: Sequence[int]) -> str:
        """Text of these tokens of the served model. Raises an LlmError."""
        return await self._own.text_of(ids)

    async def thought(
        self, told: str, scenario: Sequence[Turn], thinking: Thinking, around: Surrounding = NOTHING
    ) -> Answered:
        """The served model's thought before its answer to this; empty if it does not think, or not to an end. A learned
        answer is placed after it. Raises an LlmError."""
        if thinking == "off":
            return Answered("", None, None, 0)
        sampling = Sampling(max_tokens=self.answer_tokens, temperature=ANSWER_TEMPERATURE, thinking=thinking)
        return await self.say(told, scenario, sampling, around)

    async def tokens(self, told: str, scenario: Sequence[Turn], around: Surrounding) -> int:
        """Number of prompt tokens for the served model. Raises an LlmError."""
        return len((await self._own.tokenise(_request(around, told, scenario), around.tools)).tokens)

    async def teacher(
        self, told: str, scenario: Sequence[Turn], answer: str, around: Surrounding = NOTHING, thought: str = ""
    ) -> Teacher:
        """The distribution of the told model at each token of its answer, which comes after `thought`. Raises an
        LlmError, and ScoreRefused."""
        asked = _request(around, told, scenario)
        return await teacher_of(self._own, asked, answer, tools=around.tools, priority=self._priority, thought=thought)

    async def keep_connected(self) -> None:
        """Keep connections open between questions, until cancelled."""
        async with self._own, self._imagination:
            await anyio.sleep_forever()


def _request(around: Surrounding, told: str, scenario: Sequence[Turn]) -> list[dict[str, Any]]:
    return [as_asked(one) for one in conversation_in(around, told, scenario)]


def answer_tokens(config: Config) -> int:
    """Most tokens of an answer to a scenario. Blocking."""
    return min(config.dream.answer_tokens, max(1, (_context(config) or UNKNOWN) // 2))


def _context(config: Config) -> int | None:
    """Context length of our own engine, in tokens; None: not known."""
    try:
        text = (Path(config.model.path).expanduser() / "config.json").read_text(encoding="utf-8")
        return asked_length(config.engine.args) or context_length(json.loads(text))
    except (OSError, ValueError):
        return None


class Placed(NamedTuple):
    """A surrounding. `left_out`: why others were not taken; empty: it is the wanted one."""

    surrounding: Surrounding
    left_out: str = ""


class Surrounder:
    """Finds surroundings. Kinds that are left out are logged once for each reason."""

    def __init__(self, config: Config, dreamer: Dreamer) -> None:
        self._journal, self._dreamer = config.journal_path, dreamer
        self._said = set[str]()

    async def placed(self, effect: fx.ImagineScenario, scenario: Sequence[Turn]) -> Placed:
        """The surrounding of a dream's scenario. Raises an LlmError if the engine cannot be asked."""
        missing: dict[SurroundingKind, str] = {}
        while (wanted := in_place_of(effect.surrounding, effect.kinds, missing)).kind != "none":
            found = await self._of_kind(wanted.kind, effect.use, effect.pattern)
            first = wanted.turn % len(found) if found else 0
            shorter = sorted((one for n, one in enumerate(found) if n != first), key=_length)
            why = "there is none yet" if not found else ""
            for one in [*found[first : first + 1], *shorter]:
                if not (why := await self._problem(one, effect, scenario)):
                    return Placed(one, "; ".join(missing.values()))
            missing[wanted.kind] = f"{wanted.kind}: {why}"
            self._say(wanted.kind, why)
        return Placed(NOTHING, "; ".join(missing.values()))

    async def _of_kind(
        self, kind: SurroundingKind, use: SurroundingUse, pattern: PatternSettings
    ) -> Sequence[Surrounding]:
        if kind == "neutral" or kind == "agent":
            return shipped(kind, use)
        try:
            recorded = await anyio.to_thread.run_sync(own_records, self._journal)
        except JournalError as error:
            self._say(kind, error.line())
            return ()
        most = min(CHARACTERS_MAX, self._dreamer.room * CHARACTERS_EACH)
        own = await anyio.to_thread.run_sync(own_surroundings, recorded, pattern.instruction, most)
        return [one.surrounding for one in own if one.use == use]

    async def _problem(self, around: Surrounding, effect: fx.ImagineScenario, scenario: Sequence[Turn]) -> str:
        """Reason why it cannot be placed before the scenario; empty: it can. A short system message alone is not
        tokenised: it has at most as many tokens as bytes."""
        room, longest = self._dreamer.room, max(effect.pattern.instruction, *effect.pattern.tested_contrasts, key=len)
        told = f"{effect.beside}{JOINT}{longest}" if effect.beside else longest
        said = sum(len(turn.content.encode()) for turn in scenario) + len(told.encode())
        if len(around.messages) == 1 and not around.tools and _length(around) + said < room // 2:
            return ""
        try:
            tokens = await self._dreamer.tokens(told, scenario, around)
        except LlmRefused as error:
            return f"the model's chat template cannot show it: {error}"
        return "" if tokens <= room else f"it does not fit beside a scenario, the model has room for {room} tokens"

    def _say(self, kind: SurroundingKind, why: str) -> None:
        if f"{kind}: {why}" not in self._said:
            self._said.add(f"{kind}: {why}")
            log.info("dream.surrounding_left_out", surrounding=kind, reason=why)


def _length(one: Surrounding) -> int:
    """Size in bytes, at least that of all its texts."""
    return sum(len(str(part).encode()) for part in (*one.messages, *one.tools))
