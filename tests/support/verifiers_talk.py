"""A taskset of the verifiers library for tests, with an agent that asks over HTTP without a program of its own, and an
environment that answers as the user, so that a rollout has several turns. `settings` bend it: `turns`, and `fault`."""

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["Asking", "Talk", "Talks"]

PROMPTS = ("What is 1 + 1?", "Name a colour.", "Say a word.")


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
    pass


class TalkTask(vf.Task[TalkData]):
    @vf.reward
    async def vowels(self, trace: Any) -> float:
        fault = os.environ.get("TALK_FAULT", "")
        if fault == "NaN":
            return float("nan")
        if fault == "raises":
            raise ZeroDivisionError("of the reward")
        reply = trace.last_reply
        return sum(map(reply.count, "aeiou")) / (len(reply) + 1)


class TalksConfig(vf.TasksetConfig):
    prompts: int = len(PROMPTS)


class Talks(vf.Taskset[TalkTask, TalksConfig]):
    def load(self) -> Iterable[TalkTask]:
        return [TalkTask(TalkData(prompt=one), self.config.task) for one in PROMPTS[: self.config.prompts]]


class TalkConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()
    turns: int = 1


class Talk(vf.Env[TalkConfig]):
    async def run(self, task: Any, agents: Any) -> None:
        if os.environ.get("TALK_FAULT") == "hangs":
            time.sleep(600)
        if os.environ.get("TALK_FAULT") == "dies":
            os._exit(7)
        async with agents.agent.interaction(task) as talk:
            said = await talk.turn()
            for _ in range(self.config.turns - 1):
                if not said.terminated:
                    said = await talk.turn("And now?")
