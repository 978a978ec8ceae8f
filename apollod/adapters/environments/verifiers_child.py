"""Runs an environment of the verifiers library (0.4.0) in a process of its own: `verifiers_child.py PARENT TASKSET
DIRECTORY`. Reads a JSON object a line on stdin and writes one for each to stdout.

    {"engine": {...}, ...}   the terms, see `Session`            {"ready": true}
    {"group": 7}             all rollouts of a task, counted from 1
        {"rollouts": [{"tokens": [...], "learned": [...], "logprobs": [...], "score": 0.5, "versions": [3, 3]},
                      {"error": "why there is none"}], "broken": "why the engine did not answer"}

Any reply may be {"error": "type and message"} instead. No exception of the environment ends this process.

Rule for this file: it is run by its path, and imports only the standard library and verifiers; what it shares with
other files beside it is loaded by their path, since apollod itself need not be importable here.
"""

import asyncio
import json
import os
import runpy
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

KEY = "APOLLOD_RELAY_KEY"  # environment variable, by whose name verifiers is told a key
WANTED = "verifiers 0.4.0 or newer"


def beside(name: str) -> SimpleNamespace:
    """Names that a file beside this one defines."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name(name)), run_name=name.removesuffix(".py")))


class Unlearnable(Exception):
    """A rollout from which nothing can be learned, with the reason."""


class Session:
    """A loaded environment, which serves until `stack` is closed."""

    def __init__(self, taskset: str, directory: str, terms: Mapping[str, Any]) -> None:
        """`directory`: of the taskset's file, empty for a package. `terms`: `engine`, see `SamplingRelay`; `settings`,
        `group`, `rollout_s`; `model`: directory of the tokenizer. Raises whatever the import does."""
        sys.path.insert(0, directory or os.getcwd())
        try:
            vf: Any = import_module("verifiers.v1")
        except ModuleNotFoundError as error:
            raise ImportError(f"{error}; {found()} in {sys.executable}: pip install 'verifiers>=0.4.0'") from error
        self._vf, self._terms = vf, terms
        settings = dict(terms["settings"])
        self._renderer = settings.pop("renderer", None)
        self._env = vf.load_environment(vf.resolve_env_config(with_defaults(vf, taskset, settings)))
        self._left = iter(self._env.taskset)
        self._tasks: list[Any] = []
        self._relay = beside("sampling_relay.py").SamplingRelay(terms["engine"])
        self._context: Any = None

    async def serve(self, stack: AsyncExitStack) -> None:
        """Start what rollouts need: the way to the engine, and what the environment shares among them."""
        await self._relay.start()
        stack.push_async_callback(self._relay.close)
        os.environ[KEY] = self._relay.key
        client = self._vf.TrainClientConfig(
            base_url=f"{self._relay.url}/v1", api_key_var=KEY, renderer=self._renderer,
            renderer_model_name=self._terms["model"],
        )  # fmt: skip
        sampling = self._vf.SamplingConfig(max_tokens=self._terms["engine"]["max_tokens"])
        self._context = self._vf.ModelContext(self._terms["engine"]["model"], client, sampling)
        await stack.enter_async_context(self._env.serving())
        self.task(1)

    def task(self, number: int) -> Any:
        """A task by its number from 1; after the last one they come again."""
        while len(self._tasks) < number and (task := next(self._left, None)) is not None:
            self._tasks.append(task)
        if not self._tasks:
            raise ValueError("the taskset has no tasks")
        return self._tasks[(number - 1) % len(self._tasks)]

    async def group(self, number: int) -> dict[str, Any]:
        """All rollouts of a task, side by side."""
        self._relay.begin()
        slots = self._env.slots(self.task(number), self._terms["group"])
        rollouts = await asyncio.gather(*(self._rollout(slot) for slot in slots))
        return {"rollouts": rollouts, "broken": self._relay.broken}

    async def _rollout(self, slot: Any) -> dict[str, Any]:
        limit_s = self._terms["rollout_s"]
        try:
            async with asyncio.timeout(limit_s) as timer:
                episode = await self._env.run_slot(slot, self._context)
            told = learnable(episode)
            return {**told, "versions": self._relay.versions_of(told.pop("id"))}
        except TimeoutError as error:
            return {"error": f"it took longer than {limit_s:g} s" if timer.expired() else shared.told(error)}
        except Unlearnable as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - the environment's own, too
            return {"error": shared.told(error)}


def found() -> str:
    """The version of verifiers that is installed."""
    try:
        return f"there is verifiers {version('verifiers')}, and not {WANTED},"
    except PackageNotFoundError:
        return "there is no verifiers"


def with_defaults(vf: Any, taskset: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an environment, those that are not given so that it needs no cloud and runs no command here: the
    model is asked by a loop that runs no code (`null`), in a process of this machine. An agent that runs code has to be
    given its runtime."""
    harness_class = import_module("verifiers.v1.utils.loaders").harness_class
    made = {**settings, "taskset": {**settings.get("taskset", {}), "id": taskset}}
    for name, field in vf.env_config_type(taskset, settings.get("id", "")).model_fields.items():
        if not isinstance(agent := field.default, vf.AgentConfig):
            continue
        given = dict(settings.get(name, {}))
        if "harness" not in given and agent.harness is None and vf.default_harness_id(taskset) == "bash":
            given["harness"] = {"id": "null"}
        harness = given.get("harness", {}).get("id") or (
            vf.default_harness_id(taskset) if agent.harness is None else agent.harness.id
        )
        if not harness_class(harness).EXECUTES_CODE and "runtime" not in agent.model_fields_set:
            given.setdefault("runtime", {"type": "subprocess"})
        made[name] = given
    return made


def learnable(episode: Any) -> dict[str, Any]:
    """The tokens of an episode's last branch, which of them the model sampled, and their log-probabilities; the `id` of
    its trace. Raises Unlearnable."""
    failed = [one.last_error for one in (episode, *episode.traces) if one.last_error is not None]
    if not episode.ok:
        last = failed[-1] if failed else None
        raise Unlearnable(f"it failed: {last.type}: {last.message}" if last else "it failed without an error")
    trained = [one for one in episode.traces if one.agent.trainable]
    if len(trained) != 1:
        names = ", ".join(one.agent.name for one in trained) or "none"
        raise Unlearnable(f"it has {len(trained)} traces that are to be learned ({names}), not one")
    trace = trained[0]
    if not trace.assistant_messages:
        raise Unlearnable("the model was not asked")
    # several where the template writes earlier turns in another way later on, as without their thoughts
    branches = [one for one in trace.branches if one.trainable and any(one.sampled_mask)]
    if not branches:
        raise Unlearnable("it has no token ids: its agent asks by a client of its own; leave that out of the settings")
    nodes = branches[-1].nodes
    for turn, node in enumerate((one for one in nodes if any(one.mask)), 1):
        if len(node.logprobs) != sum(node.mask):
            raise Unlearnable(f"turn {turn} has {len(node.logprobs)} log-probabilities for {sum(node.mask)} tokens")
    return {
        "id": trace.id, "tokens": [one for node in nodes for one in node.token_ids],
        "learned": [one for node in nodes for one in node.mask],
        "logprobs": [one for node in nodes if any(node.mask) for one in node.logprobs], "score": trace.reward,
    }  # fmt: skip


async def serve(questions: Any, replies: Any, taskset: str, directory: str) -> None:
    """Load the environment as the first question says, and reply to the others until there are no more."""
    async with AsyncExitStack() as stack:
        session: Session | None = None

        async def reply_to(question: dict[str, Any]) -> dict[str, Any]:
            nonlocal session
            if session is None:
                session = Session(taskset, directory, question)
                await session.serve(stack)
                return {"ready": True}
            return await session.group(question["group"])

        while line := await asyncio.to_thread(questions.readline):
            try:
                reply = json.dumps(await reply_to(json.loads(line)))
            except BaseException as error:  # noqa: BLE001 - sys.exit() too: it must not end this process
                reply = json.dumps({"error": shared.told(error)})
            replies.write(reply.encode() + b"\n")
            replies.flush()


shared = beside("python_child.py")

if __name__ == "__main__":
    shared.die_with(int(sys.argv[1]))
    asyncio.run(serve(*shared.take_streams(), *sys.argv[2:4]))
