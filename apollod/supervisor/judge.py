"""The judge of the configuration: its identity, its planted cases, and its questions."""

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import anyio

from apollod.adapters.llm.client import HttpLlm, side_by_side
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.openai_api import Completion, Sampling
from apollod.core import events as ev
from apollod.core.facts.intake.events import Removed
from apollod.core.facts.judging.events import Vote
from apollod.core.inputs import Judged
from apollod.core.rules.dreams.policy import SIDE_BY_SIDE
from apollod.curation.judge_question import (
    PROMPT_HASH,
    SCHEMA,
    Case,
    question_about,
    read_cases,
    vote_of,
    with_injections,
    without_repeats,
)
from apollod.errors import ConfigError, RecordRefused, VerdictNonsense
from apollod.explain import reason
from apollod.supervisor.child_commands import priority_at
from apollod.supervisor.config import Config

OWN_PRIORITY = 10  # at our own engine, where users have 0 and are served first
SHIPPED = "judge_cases.jsonl"


class Judge:
    """Asks about examples and cases. Retries after a failure are the core's decision."""

    def __init__(self, config: Config, by_daemon: bool = False) -> None:
        """`by_daemon`: its requests to our own engine do not count as a user's. Raises ConfigError for unusable
        cases."""
        section, engine = config.judge, config.engine
        cases = planted_cases(section.cases)
        elsewhere = config.endpoint_named(section.endpoint)
        self.served = elsewhere is None
        self.model = elsewhere.model if elsewhere else engine.served_name
        self.cases = {case.planted.id: case for case in cases}
        url, key = (elsewhere.base_url, elsewhere.api_key) if elsewhere else (config.api_url, engine.api_key)
        limit_s, own = section.timeout_s, elsewhere is None or config.is_own(elsewhere.base_url)
        whole_s = section.votes * limit_s + 5.0  # votes are requested in parallel, and may wait for a free connection
        self._endpoint = Endpoint(
            url, self.model, key, section.concurrency, attempts=1, try_s=limit_s, total_s=whole_s,
            ours=by_daemon and own,
        )  # fmt: skip
        self._llm = HttpLlm(self._endpoint)
        many = replace(self._endpoint, concurrency=max(section.concurrency, SIDE_BY_SIDE))
        self._for_dreams = HttpLlm(many) if self.served else self._llm
        self._max_tokens = section.max_tokens
        self._priority = None if section.endpoint else priority_at(config, OWN_PRIORITY)  # another may refuse the field
        self._thinking = section.thinking if own else None
        told = "" if self._thinking in (None, "template") else f", thinking {self._thinking}"
        self._sampling = f"{section.votes} votes at temperature {section.temperature:g}{told}"

    def configured(self) -> ev.JudgeConfigured:
        """The event recorded at every start."""
        return ev.JudgeConfigured(
            model=self.model, prompt_hash=PROMPT_HASH, endpoint=self._endpoint.base_url, served=self.served,
            cases=tuple(case.planted for case in self.cases.values()), sampling=self._sampling,
        )  # fmt: skip

    async def ask(
        self, canonical: bytes, votes: int, temperature: float, removed: Sequence[Removed] = (),
        followed: Sequence[str] = (), dreamt: bool = False,
    ) -> Judged:  # fmt: skip
        """Ask about a record; `removed`: text stripped from it, `followed`: messages after it. `dreamt`: asked while
        our own engine is idle, so more requests may run at a time. Raises an LlmError, VerdictNonsense as soon as one
        vote is invalid, and RecordRefused for an invalid record."""
        question, began = question_about(canonical, removed, followed), time.monotonic()
        llm = self._for_dreams if dreamt else self._llm
        sampling = Sampling(
            max_tokens=self._max_tokens, temperature=temperature, schema=SCHEMA, priority=self._priority,
            thinking=self._thinking,
        )  # fmt: skip

        async def vote() -> tuple[Vote, Completion]:
            answer = await llm.complete(question.messages, sampling)
            said = answer.choices[0]
            if said.cut:
                raise VerdictNonsense(f"the answer was cut off after {self._max_tokens} tokens")
            return vote_of(self._endpoint.without_key(said.text), question), answer

        # a request a vote, since not every endpoint gives several answers to one
        given, answers = zip(*await side_by_side([vote] * votes), strict=True)
        versions = [answer.versions.last for answer in answers if answer.versions is not None]
        return Judged(
            given, max(versions, default=None), sum(answer.prompt_tokens for answer in answers),
            sum(answer.completion_tokens for answer in answers), round(time.monotonic() - began, 6),
        )  # fmt: skip

    async def keep_connected(self) -> None:
        """Keep connections open between questions, until cancelled."""
        async with self._llm, self._for_dreams:
            await anyio.sleep_forever()

    async def close(self) -> None:
        """Close the open connections."""
        for llm in (self._llm, self._for_dreams):
            await llm.close()


def planted_cases(paths: Sequence[str]) -> list[Case]:
    """Planted cases: those that ship with apollod, some with a prompt injection, and those of these files. Raises
    ConfigError for an unusable file."""
    shipped = (files("apollod") / "data" / SHIPPED).read_bytes()
    found = with_injections(read_cases(shipped.splitlines(), SHIPPED))
    try:
        for name in paths:
            path = Path(name).expanduser()
            found += read_cases(path.read_bytes().splitlines(), str(path))
        return without_repeats(found)
    except OSError as error:
        raise ConfigError(
            f"[judge] cases {error.filename} cannot be read: {reason(error)}", "check path and owner"
        ) from error
    except RecordRefused as error:
        raise ConfigError(f"[judge] cases: {error}", error.hint) from error
