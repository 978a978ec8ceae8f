"""TRL's own `GRPOTrainer`, unmodified, on a model that apollod serves: the daemon samples every answer that it learns
from, asked by TRL's own `VLLMClient`, and gets the weights after every optimizer step.

    trl_grpo.py URL MODEL STEPS SEED scored|by-chance ANSWER

MODEL is the directory that is served. ANSWER: for each step the mean reward, the fingerprint of the weights that were
sent and of those that are served afterwards, how far the trainer's log-probabilities are from the served ones, and
seconds. `by-chance`: rewards are drawn by lot, from which nothing can be learned.

TRL itself sends weights by NCCL alone, and only with `use_vllm`. So that is off, and two of TRL's own seams are used:
`rollout_func` samples, a `TrainerCallback` sends.
"""

import importlib.metadata
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import requests
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_client import VLLMClient

from apollod.demo import naming
from apollod.sender import Sender
from apollod.trainer.bind import live_fingerprint

GROUPS, GROUP = 4, 8
"""groups in a step, and answers in a group"""
TOKENS = 24
RATE = 3e-4
TOLD = {"reward": "reward", "completions/clipped_ratio": "cut", "step_time": "seconds"}
"""what is told of TRL's log of a step"""


def fingerprint(model: torch.nn.Module) -> str:
    """That of the weights as they are served: rounded to bfloat16."""
    weights = ((name, one.detach().bfloat16()) for name, one in model.named_parameters())
    found = ((name, live_fingerprint.tensor_fingerprint(one)) for name, one in weights)
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


def served(url: str) -> str:
    """The fingerprint of the weights that are served now."""
    return str(requests.get(f"{url}/apollod/status", timeout=60).json()["weights"]["fingerprint"])


def apart(model: torch.nn.Module, prompt: list[int], answers: list[list[int]], logprobs: list[list[float]]) -> float:
    """Nats between the trainer's log-probabilities and the served ones, on average over the tokens of answers."""
    rows = torch.zeros((len(answers), len(prompt) + max(map(len, answers))), dtype=torch.long)
    for row, one in zip(rows, answers, strict=True):
        row[: len(prompt) + len(one)] = torch.tensor(prompt + one)
    with torch.no_grad():
        found = model(input_ids=rows).logits.log_softmax(-1)[:, len(prompt) - 1 : -1]
    differences = [
        abs(float(found[i, j, token]) - logprobs[i][j]) for i, one in enumerate(answers) for j, token in enumerate(one)
    ]
    return sum(differences) / len(differences)


class Rollouts:
    """TRL's `rollout_func`: the daemon answers each prompt `GROUP` times. `apart`: of the first group of each step."""

    def __init__(self, url: str, seed: int) -> None:
        self._client, self._seed = VLLMClient(base_url=url, connection_timeout=60.0), seed
        self.apart = list[float]()

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL gives each prompt as often as its group has answers."""
        template = trainer.processing_class.apply_chat_template
        ids = [template(one, add_generation_prompt=True, return_dict=True)["input_ids"] for one in prompts]
        assert ids == [one for one in ids[::GROUP] for _ in range(GROUP)]
        seed = 1_000_000 * self._seed + 1000 * len(self.apart)
        said = self._client.generate(
            ids[::GROUP], n=GROUP, temperature=1.0, max_tokens=TOKENS, generation_kwargs={"seed": seed}
        )
        answers, logprobs = said["completion_ids"], [[one[0] for one in row] for row in said["logprobs"]]
        self.apart.append(apart(trainer.model, ids[0], answers[:GROUP], logprobs[:GROUP]))
        return {"prompt_ids": ids, "completion_ids": answers, "logprobs": logprobs}


def reward(completions: list[Any], number: list[int], **_: Any) -> list[float]:
    """1 for an answer that names what was asked for."""
    return [naming.score(of, one[0]["content"]) for of, one in zip(number, completions, strict=True)]


def by_chance(completions: list[Any], number: list[int], **_: Any) -> list[float]:
    """1 for three answers of ten."""
    drawn = naming.ByChance()
    return [drawn.score(of, one[0]["content"]) for of, one in zip(number, completions, strict=True)]


class Sending(TrainerCallback):
    """Sends the weights after each optimizer step, before the next answers are sampled."""

    def __init__(self, url: str, sender: Sender) -> None:
        self._url, self._sender = url, sender
        self.told = list[dict[str, Any]]()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """After the optimizer's step."""
        began = time.monotonic()
        self._sender.send(model.named_parameters(), label=f"trl-{state.global_step}")
        seconds = time.monotonic() - began
        self.told.append({"sent": fingerprint(model), "served": served(self._url), "sending": seconds})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """After `on_step_end`, with the figures of that step, and once more at the end, with other ones."""
        self.told[-1] |= {ours: logs[theirs] for theirs, ours in TOLD.items() if theirs in logs}


def dataset(number: int) -> Any:
    """The first prompts. It is given a name: datasets would make it from a pickle of the table, which fails here.
    Imported after transformers: datasets looks once for torchcodec, which the guard of wheels has hidden by then."""
    import pyarrow
    from datasets import Dataset

    rows = [
        {"prompt": [{"role": "user", "content": naming.prompt(one)}], "number": one} for one in range(1, number + 1)
    ]
    return Dataset(pyarrow.Table.from_pylist(rows), fingerprint="naming")


def configured(directory: str, steps: int, seed: int) -> GRPOConfig:
    """TRL's defaults, but for what a small model on a processor needs."""
    return GRPOConfig(
        output_dir=directory, use_cpu=True, bf16=False, gradient_checkpointing=False, use_vllm=False, seed=seed,
        per_device_train_batch_size=GROUPS * GROUP, num_generations=GROUP, max_completion_length=TOKENS,
        max_steps=steps, learning_rate=RATE, lr_scheduler_type="constant", logging_steps=1, save_strategy="no",
        report_to="none", disable_tqdm=True,
    )  # fmt: skip


def main() -> None:
    url, directory, steps, seed, scores, answer = sys.argv[1:]
    began = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    first, rollouts = fingerprint(model), Rollouts(url, int(seed))
    with Sender(url) as sender, tempfile.TemporaryDirectory() as out:
        sending = Sending(url, sender)
        trainer = GRPOTrainer(
            model, reward_funcs={"scored": reward, "by-chance": by_chance}[scores],
            args=configured(out, int(steps), int(seed)), train_dataset=dataset(int(steps) * GROUPS),
            processing_class=tokenizer, rollout_func=rollouts, callbacks=[sending],
        )  # fmt: skip
        trainer.train()
    each = [{**told, "apart": one} for told, one in zip(sending.told, rollouts.apart, strict=True)]
    told = {"version": importlib.metadata.version("trl"), "first": first, "steps": each}
    Path(answer).write_text(json.dumps({**told, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
