"""Who imagines scenarios, and who answers them: the endpoint of `[dream]`, and the served model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.request import Sampling
from apollod.core.dreams.scenario import Turn
from apollod.curation.dreaming.imagination import SCHEMA, imagining, scenario_of
from apollod.errors import DreamCut
from apollod.supervisor.child_commands import serves_by_priority
from apollod.supervisor.config import Config

OWN_PRIORITY = 20
"""at our own engine: after users (0) and judge (10)"""


class Imagined(NamedTuple):
    """A scenario, and what it cost."""

    scenario: tuple[Turn, ...]
    tokens: int


class Answered(NamedTuple):
    """An answer. `logprob`: mean of its tokens, natural logarithm; `tokens`: of prompt and answer."""

    text: str
    logprob: float | None
    weights_version: int | None
    tokens: int


class Dreamer:
    """Asks once; whoever asks again is the core."""

    def __init__(self, config: Config) -> None:
        section, engine = config.dream, config.engine
        limit_s = section.timeout_s
        own = Endpoint(
            config.api_url, engine.served_name, engine.api_key, 1, attempts=1, try_s=limit_s, total_s=limit_s
        )
        elsewhere = Endpoint(section.base_url, section.model, section.api_key, 1, 1, limit_s, limit_s)
        self._priority = OWN_PRIORITY if serves_by_priority(config) else None
        self._own = HttpLlm(own)
        self._imagination = HttpLlm(elsewhere) if section.base_url else self._own
        self._section = section
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
        section = self._section
        sampling = Sampling(
            max_tokens=section.max_tokens, temperature=section.temperature, schema=SCHEMA, seed=seed,
            priority=None if section.base_url else self._priority,
        )  # fmt: skip
        answer = await self._imagination.complete(imagining(instruction, seeds, unlike, variation_of), sampling)
        said = answer.choices[0]
        if said.finish_reason == "length":
            raise DreamCut("the scenario", section.max_tokens, "[dream] max_tokens")
        return Imagined(scenario_of(said.text), answer.prompt_tokens + answer.completion_tokens)

    async def answer(self, told: str, scenario: Sequence[Turn], temperature: float, seed: int) -> Answered:
        """The served model's answer after the system message `told`, if there is one. Raises an LlmError, and
        DreamCut."""
        sampling = Sampling(
            max_tokens=self._section.answer_tokens, temperature=temperature, logprobs=True, priority=self._priority,
            seed=seed,
        )  # fmt: skip
        answer = await self._own.complete(conversation(told, scenario), sampling)
        said = answer.choices[0]
        if said.finish_reason == "length":
            raise DreamCut("the answer", self._section.answer_tokens, "[dream] answer_tokens")
        logprobs = said.logprobs or ()
        return Answered(
            said.text, sum(logprobs) / len(logprobs) if logprobs else None,
            answer.versions.last if answer.versions is not None else None,
            answer.prompt_tokens + answer.completion_tokens,
        )  # fmt: skip

    async def keep_connected(self) -> None:
        """Keep connections open between questions, until cancelled."""
        async with self._own, self._imagination:
            await anyio.sleep_forever()


def conversation(told: str, scenario: Sequence[Turn], answer: str | None = None) -> list[dict[str, Any]]:
    """As messages: a system message if there is one to tell, the scenario, and an answer if there is one."""
    first = [{"role": "system", "content": told}] if told else []
    last = [{"role": "assistant", "content": answer}] if answer is not None else []
    return [*first, *({"role": turn.role, "content": turn.content} for turn in scenario), *last]
