"""A taskset of the verifiers library for tests, with an agent that asks over HTTP without a program of its own, and an
environment that answers as the user, so that a rollout has several turns. Its settings: `turns`, and the `faults` of
its tasks."""

import asyncio
import math
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["Asking", "Talk", "Talks"]


class AskingConfig(vf.HarnessConfig):
    pass


class Asking(vf.Harness[AskingConfig]):
    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Mapping[str, str], data: Any,
        tool_interception_url: str | None = None,
    ) -> vf.ProgramResult:  # fmt: skip
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [{"role": one.role, "content": one.content or ""} for one in prompt]
        async with httpx.AsyncClient(timeout=None) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions", json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )  # fmt: skip
        return vf.ProgramResult(int(answer.status_code != 200), "", answer.text)


class TalkData(vf.TaskData):
    fault: str = ""


class TalkTask(vf.Task[TalkData]):
    @vf.reward
    async def vowels(self, trace: Any) -> float:
        """Share of vowels in the last answer, so that a model without any skill has other scores each time."""
        if self.data.fault == "raises":
            raise ZeroDivisionError("of the reward")
        reply = trace.last_reply
        return math.nan if self.data.fault == "NaN" else sum(map(reply.count, "aeiou")) / (len(reply) + 1)


class TalksConfig(vf.TasksetConfig):
    faults: list[str] = [""]


class Talks(vf.Taskset[TalkTask, TalksConfig]):
    """A task for each fault."""

    def load(self) -> Iterable[TalkTask]:
        return [
            TalkTask(TalkData(prompt=f"Say word {number}.", fault=fault), self.config.task)
            for number, fault in enumerate(self.config.faults)
        ]


class TalkConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()
    turns: int = 1


class Talk(vf.Env[TalkConfig]):
    async def run(self, task: TalkTask, agents: Any) -> None:
        match task.data.fault:
            case "sleeps":
                await asyncio.sleep(600)
            case "hangs":
                subprocess.run(["sleep", "600"], check=True, start_new_session=True)  # noqa: ASYNC221 - that is the fault
            case "dies":
                os._exit(7)
        async with agents.agent.interaction(task) as talk:
            said = await talk.turn()
            for _ in range(self.config.turns - 1):
                if not said.terminated:
                    said = await talk.turn("And now?")
