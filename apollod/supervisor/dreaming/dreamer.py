"""Who imagines scenarios, and who answers them: the endpoint of `[dream]`, and the served model. Lessons ask both,
too."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from msgspec.structs import replace

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.endpoint_use import EndpointUse
from apollod.adapters.llm.request import Sampling
from apollod.adapters.llm.teaching import teacher_of
from apollod.core.dreams.scenario import Turn
from apollod.curation.dreaming.imagination import SCHEMA, imagining, scenario_of
from apollod.curation.redaction import redact_text
from apollod.errors import DreamCut
from apollod.model.positions import asked_length, context_length
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.config import Config
from apollod.wire.teacher import Teacher

OWN_PRIORITY = 20
"""at our own engine: after users (0) and judge (10)"""

UNKNOWN = 1 << 20
"""tokens of context, where it is not known how many there are"""

SIDE_BY_SIDE = 8
"""questions to our own engine at one time, at most"""


class Imagined(NamedTuple):
    """A scenario, and what it cost."""

    scenario: tuple[Turn, ...]
    tokens: int


class Answered(NamedTuple):
    """An answer. `logprob`: mean of its tokens, natural logarithm; `tokens`: of prompt and answer; `cut`: it was not at
    its end."""

    text: str
    logprob: float | None
    weights_version: int | None
    tokens: int
    cut: bool = False


class Dreamer:
    """Asks once; whoever asks again is the core."""

    def __init__(self, config: Config, own: EndpointUse | None = None) -> None:
        """`own`: counts what we ask of our own engine."""
        section, engine = config.dream, config.engine

        def asked(url: str, model: str, key: str, at_once: int = 1) -> HttpLlm:
            limit_s = section.timeout_s
            use = (own if config.is_own(url) else None) or EndpointUse()
            return HttpLlm(Endpoint(url, model, key, at_once, attempts=1, try_s=limit_s, total_s=limit_s, use=use))

        self._priority = OWN_PRIORITY if serves_by_priority(config) else None
        self._own = asked(config.api_url, engine.served_name, engine.api_key, SIDE_BY_SIDE)
        elsewhere = bool(section.base_url)
        self._imagines_here = config.is_own(section.base_url)
        self._imagination = asked(section.base_url, section.model, section.api_key) if elsewhere else self._own
        self.has_imagination = elsewhere
        self._section = section
        self.answer_tokens = answer_tokens(config)
        self.model = section.model or engine.served_name

    async def imagine(
        self,
        instruction: str,
        seeds: Sequence[str],
        unlike: Sequence[tuple[Turn, ...]],
        variation_of: tuple[Turn, ...],
        seed: int,
    ) -> Imagined:
        """Raises an LlmError, DreamNonsense, and DreamCut."""
        said = await self.imagine_text(imagining(instruction, seeds, unlike, variation_of), seed, SCHEMA)
        if said.cut:
            raise DreamCut("the scenario", self._section.max_tokens, "[dream] max_tokens")
        scenario = tuple(Turn(turn.role, redact_text(turn.content)) for turn in scenario_of(said.text))
        return Imagined(scenario, said.tokens)

    async def imagine_text(
        self, asked: Sequence[Mapping[str, Any]], seed: int, schema: Mapping[str, Any] | None = None
    ) -> Answered:
        """What the imagination says to these messages, as it is. Raises an LlmError."""
        sampling = Sampling(
            max_tokens=self._section.max_tokens, temperature=self._section.temperature, schema=schema, seed=seed,
            priority=self._priority if self._imagines_here else None,
        )  # fmt: skip
        answer = await self._imagination.complete(asked, sampling)
        said, tokens = answer.choices[0], answer.prompt_tokens + answer.completion_tokens
        return Answered(said.text, None, None, tokens, said.finish_reason == "length")

    async def answer(self, told: str, scenario: Sequence[Turn], temperature: float, seed: int) -> Answered:
        """The served model's answer after the system message `told`, if there is one. Raises an LlmError, and
        DreamCut."""
        sampling = Sampling(max_tokens=self.answer_tokens, temperature=temperature, logprobs=True, seed=seed)
        answer = await self.say(told, scenario, sampling)
        if answer.cut:
            raise DreamCut("the answer", self.answer_tokens, "[dream] answer_tokens")
        return answer

    async def say(self, told: str, scenario: Sequence[Turn], sampling: Sampling) -> Answered:
        """As `answer`, with what was said so far where it is cut off. Raises an LlmError."""
        answer = await self._own.complete(conversation(told, scenario), replace(sampling, priority=self._priority))
        said = answer.choices[0]
        logprobs = said.logprobs or ()
        return Answered(
            redact_text(said.text), sum(logprobs) / len(logprobs) if logprobs else None,
            answer.versions.last if answer.versions is not None else None,
            answer.prompt_tokens + answer.completion_tokens, said.finish_reason == "length",
        )  # fmt: skip

    async def teacher(self, told: str, scenario: Sequence[Turn], answer: str) -> Teacher:
        """What the served model, told, thinks of each token of its answer. Raises an LlmError, and ScoreRefused."""
        return await teacher_of(self._own, conversation(told, scenario), answer, priority=self._priority)

    async def keep_connected(self) -> None:
        """Keep connections open between questions, until cancelled."""
        async with self._own, self._imagination:
            await anyio.sleep_forever()


def answer_tokens(config: Config) -> int:
    """Of an answer to a scenario, at most. Blocking."""
    return min(config.dream.answer_tokens, max(1, (_context(config) or UNKNOWN) // 2))


def _context(config: Config) -> int | None:
    """What our own engine takes at most, in tokens; None: not known."""
    try:
        text = (Path(config.model.path).expanduser() / "config.json").read_text(encoding="utf-8")
        return asked_length(config.engine.args) or context_length(json.loads(text))
    except (OSError, ValueError):
        return None


def conversation(told: str, scenario: Sequence[Turn], answer: str | None = None) -> list[dict[str, Any]]:
    """As messages: a system message if there is one to tell, the scenario, and an answer if there is one."""
    first = [{"role": "system", "content": told}] if told else []
    last = [{"role": "assistant", "content": answer}] if answer is not None else []
    return [*first, *({"role": turn.role, "content": turn.content} for turn in scenario), *last]
