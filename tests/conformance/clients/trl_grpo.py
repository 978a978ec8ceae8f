"""`examples/trl_grpo.py`, TRL's own `GRPOTrainer` on a model that apollod serves, with measurements beside it.

    trl_grpo.py URL MODEL STEPS SEED scored|by-chance ANSWER

MODEL is the directory that is served. ANSWER: for each step the mean reward, the fingerprint of the weights that were
sent and of those that are served afterwards, how far the trainer's log-probabilities are from the served ones, and
seconds. `by-chance`: rewards are drawn by lot, from which nothing can be learned.
"""

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

import requests
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from apollod.demo import naming
from apollod.sender import Sender
from apollod.trainer.bind import live_fingerprint
from examples import trl_grpo as example

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


class Rollouts(example.Rollouts):
    """`apart`: of the first group of each step."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.apart = list[float]()

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL gives each prompt as often as its group has answers."""
        assert prompts == [one for one in prompts[:: example.GROUP] for _ in range(example.GROUP)]
        said = super().__call__(prompts, trainer)
        of = [said[name][: example.GROUP] for name in ("completion_ids", "logprobs")]
        self.apart.append(apart(trainer.model, said["prompt_ids"][0], *of))
        return said


class Sending(example.Sending):
    """Tells of each step what was sent and is served."""

    def __init__(self, url: str, sender: Sender) -> None:
        super().__init__(sender)
        self._url = url
        self.told = list[dict[str, Any]]()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """After the optimizer's step."""
        began = time.monotonic()
        super().on_step_end(args, state, control, model)
        seconds = time.monotonic() - began
        self.told.append({"sent": fingerprint(model), "served": served(self._url), "sending": seconds})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """After `on_step_end`, with the figures of that step, and once more at the end, with other ones."""
        self.told[-1] |= {ours: logs[theirs] for theirs, ours in TOLD.items() if theirs in logs}


def by_chance(completions: list[Any], number: list[int], **_: Any) -> list[float]:
    """1 for three answers of ten."""
    drawn = naming.ByChance()
    return [drawn.score(of, one[0]["content"]) for of, one in zip(number, completions, strict=True)]


def main() -> None:
    url, directory, steps, seed, scores, answer = sys.argv[1:]
    began = time.monotonic()
    first = fingerprint(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32))
    rollouts, score = Rollouts(url, int(seed)), {"scored": example.reward, "by-chance": by_chance}[scores]
    with Sender(url) as sender:
        sending = Sending(url, sender)
        example.train(directory, rollouts, sending, score, int(steps), int(seed))
    each = [{**told, "apart": one} for told, one in zip(sending.told, rollouts.apart, strict=True)]
    told = {"version": importlib.metadata.version("trl"), "first": first, "steps": each}
    Path(answer).write_text(json.dumps({**told, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
