"""The trainer's side of the run-api of Atropos (atroposlib 0.4.0, atroposlib/api/server.py): registers, and takes
groups that environments sampled and scored.

The service forgets everything when it is restarted or reset, hands a batch out once, and gives groups of any shape:
what cannot be learned is refused here, with its place.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from apollod.adapters.environments.environment_interface import object_of, shown
from apollod.adapters.llm.client import Connections
from apollod.adapters.llm.endpoint import Endpoint
from apollod.errors import EnvironmentFailed, LlmError, LlmRefused, RecordRefused
from apollod.wire.rollouts import MISSING, ROUNDING, Rollout, rollout

POLL_S = 1.0
STUCK_POLLS = 20
"""after so many without a batch, the size of the groups that wait is looked at"""
ANSWER_S = 60.0
NOT_LEARNED = -100
"""in a mask: the token is context"""


class AtroposService:
    """A service, at which this is the one trainer: batches of one group."""

    def __init__(self, url: str, group: int, max_tokens: int, poll_s: float = POLL_S) -> None:
        """`group`: sequences of a group, as the environments have it (`group_size`); `max_tokens`: of a sequence.
        Raises ConfigError for a URL that cannot be used."""
        self._url, self._group, self._max_tokens, self._poll_s = url, group, max_tokens, poll_s
        self._connections = Connections(Endpoint(url, "", attempts=1, try_s=ANSWER_S, total_s=ANSWER_S))
        self._taken = deque[dict[str, Any]]()
        self._one_at_a_time = anyio.Lock()

    async def next_group(self) -> tuple[Rollout, ...]:
        """Wait for the next group, however long that takes. Raises EnvironmentFailed for a service that does not answer
        as Atropos does, RecordRefused for a group that cannot be learned."""
        async with self._one_at_a_time:
            polls = 0
            while not self._taken:
                await self._register()  # each time: it may have been restarted or reset
                answer = await self._ask("/batch")
                self._taken += [one for one in _list(answer, "batch") if isinstance(one, dict)]
                polls += 1
                if not self._taken:
                    if polls % STUCK_POLLS == 0:
                        await self._refuse_other_sizes()
                    await anyio.sleep(self._poll_s)
            return rollouts_of(self._taken.popleft())

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def _register(self) -> None:
        """Register, unless the service knows a trainer. It answers a second registration without taking it over.

        A service that was given a group before any trainer (by an environment that outlived a restart) takes none until
        it is reset, which only loses groups that it would hand to nobody."""
        if (found := await self._batch_size()) == -1:
            found = await self._registered()
        if found == -1:
            await self._said("/reset_data")
            found = await self._registered()
        if found != self._group:
            what = "takes no trainer" if found == -1 else f"works for a trainer with batches of {found} sequences"
            raise EnvironmentFailed(
                self._url, f"{what}, not {self._group}",
                "set [[environment]] group to the group_size of its environments; then GET "
                f"{self._url}/reset_data, which discards what waits there",
                outside=True,
            )  # fmt: skip

    async def _registered(self) -> Any:
        await self._ask("/register", {
            "wandb_group": "", "wandb_project": "", "batch_size": self._group, "max_token_len": self._max_tokens,
            "checkpoint_dir": "", "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1 << 30,
        })  # fmt: skip
        return await self._batch_size()

    async def _batch_size(self) -> Any:
        return (await self._ask("/info")).get("batch_size")

    async def _refuse_other_sizes(self) -> None:
        """Raise EnvironmentFailed if groups wait that no batch can be made of: it has exactly so many sequences."""
        if not (await self._ask("/status")).get("queue_size"):
            return
        size = len(_list(await self._ask("/latest_example"), "tokens"))
        if size and self._group % size:
            raise EnvironmentFailed(
                self._url, f"has groups of {size} sequences, and hands out {self._group}",
                f"set [[environment]] group = {size}; then GET {self._url}/reset_data, which discards what waits there",
                outside=True,
            )  # fmt: skip

    async def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object that it answers. Raises EnvironmentFailed."""
        answer = await self._said(path, body)
        if (found := object_of(answer)) is None:
            raise EnvironmentFailed(
                self._url, f"answered {path} with no JSON object: {shown(answer)}", "is it an Atropos run-api?",
                outside=True,
            )  # fmt: skip
        return found

    async def _said(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """POST, or GET without a body. Raises EnvironmentFailed."""
        try:
            if body is None:
                return await self._connections.get(path)
            return (await self._connections.post(path, body)).body
        except LlmError as error:
            raise self._failure(path, error) from error

    def _failure(self, path: str, error: LlmError) -> EnvironmentFailed:
        happened = str(error).removeprefix(self._url).strip()
        if path == "/batch" and isinstance(error, LlmRefused) and error.status >= 500:
            hint = "an environment posted a score or log-probability that is no number: its batch is lost"
            return EnvironmentFailed(self._url, happened, hint, outside=True)
        return EnvironmentFailed(self._url, happened, "look whether run-api runs, and at its URL", outside=True)


def rollouts_of(group: Mapping[str, Any]) -> tuple[Rollout, ...]:
    """The rollouts of a group as the service gives it. Raises RecordRefused with the place of what is wrong."""
    tokens, masks = _lists(group, "tokens"), _lists(group, "masks")
    scores, logprobs = group.get("scores"), group.get("inference_logprobs")
    if not logprobs:
        raise RecordRefused(
            "the group has no inference_logprobs",
            "sample through ManagedServer, and give the logprobs of its nodes in collect_trajectories",
        )
    if not isinstance(scores, list) or not isinstance(logprobs, list):
        raise RecordRefused("its scores or inference_logprobs are no list", "look at what the environment posts")
    if not len(tokens) == len(masks) == len(scores) == len(logprobs):
        raise RecordRefused(
            f"it has {len(tokens)} sequences, {len(masks)} masks, {len(scores)} scores and {len(logprobs)} lists of "
            "log-probabilities",
            "look at what the environment posts",
        )
    return tuple(
        _rollout(group, number, *each)
        for number, each in enumerate(zip(tokens, masks, scores, logprobs, strict=True), 1)
    )


def _lists(group: Mapping[str, Any], name: str) -> list[list[int]]:
    found = group.get(name)
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        raise RecordRefused(f"its {name} are no lists", "look at what the environment posts")
    return found


def _rollout(
    group: Mapping[str, Any], number: int, tokens: Sequence[Any], mask: Sequence[Any], score: Any, logprobs: Any
) -> Rollout:
    """One sequence. The log-probability of a token that nobody gave is 1.0 (ManagedServer), -9999 (vLLM) or null."""
    where = f"sequence {number}"
    if not isinstance(score, int | float) or isinstance(score, bool):
        raise RecordRefused(f"the score of {where} is {json.dumps(score)[:40]}", "give a number")
    if not len(tokens) == len(mask) == len(logprobs):
        raise RecordRefused(
            f"{where} has {len(tokens)} tokens, a mask of {len(mask)} and {len(logprobs)} log-probabilities",
            "give one of each for each token",
        )
    if not all(isinstance(one, int) and 0 <= one < 1 << 32 for one in tokens):
        raise RecordRefused(f"{where} has tokens that are no ids", "look at what the environment posts")
    learned = [one != NOT_LEARNED for one in mask]
    mu = [value for value, is_learned in zip(logprobs, learned, strict=True) if is_learned]
    missing = next((place for place, value in enumerate(mu, 1) if not _is_logprob(value)), 0)
    if missing:
        raise RecordRefused(
            f"{where} has no log-probability for sampled token {missing} of {len(mu)} ({mu[missing - 1]})",
            "the server returned fewer than it sampled: sample through ManagedServer with our engine",
        )
    override = next(iter(_list(group, "overrides")[number - 1 : number]), None) or {}
    found = rollout(list(tokens), learned, mu, float(score), _temperature(group, override))
    return msgspec.structs.replace(found, neutral=bool(override.get("set_advantage_to_zero")))


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    """The list of this name; empty if there is none."""
    found = values.get(name)
    return found if isinstance(found, list) else []


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and MISSING < value <= ROUNDING


def _temperature(group: Mapping[str, Any], override: Mapping[str, Any]) -> float:
    """Sampling temperature of a sequence: its own, else that of the group's parameters, else 1."""
    places = (override, group.get("generation_params") or {}, group.get("group_overrides") or {})
    found = next((one["temperature"] for one in places if isinstance(one.get("temperature"), int | float)), 1.0)
    return float(found)
