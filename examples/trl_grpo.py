"""TRL's `GRPOTrainer`, unmodified, teaches a model that apollod serves: the daemon samples every answer that it learns
from, and gets the weights after every optimizer step. The task is to name a day, a colour or a food.

    pip install trl==1.16.0 accelerate datasets
    python -m apollod.demo.tiny_model MODEL    # a small model, to be served
    python examples/trl_grpo.py http://127.0.0.1:8000 MODEL

Needs `[control] enabled = true` in apollod's configuration. TRL itself sends weights by NCCL alone, and only with
`use_vllm`. So that is off, and two of TRL's own seams are used: `rollout_func` samples, a `TrainerCallback` sends.
"""

import sys
import tempfile
from typing import Any

from apollod.demo import naming
from apollod.foreign_wheels import guard_lazily
from apollod.sender import Sender

guard_lazily()  # transformers imports torchvision, which may be of another torch, as in apollod's own environment

from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_client import VLLMClient

STEPS, GROUPS, GROUP, TOKENS = 40, 4, 8, 24  # groups in a step, answers in a group, tokens of an answer


class Rollouts:
    """TRL's `rollout_func`: the daemon answers each prompt `GROUP` times."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self.client, self.seed = VLLMClient(base_url=url, connection_timeout=60.0), 1_000_000 * seed

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        template = trainer.processing_class.apply_chat_template
        ids = [template(one, add_generation_prompt=True, return_dict=True)["input_ids"] for one in prompts]
        once, seed = ids[::GROUP], {"seed": self.seed}  # TRL gives each prompt as often as its group has answers
        self.seed += 1000
        said = self.client.generate(once, n=GROUP, temperature=1.0, max_tokens=TOKENS, generation_kwargs=seed)
        logprobs = [[one[0] for one in row] for row in said["logprobs"]]
        return {"prompt_ids": ids, "completion_ids": said["completion_ids"], "logprobs": logprobs}


class Sending(TrainerCallback):
    """Sends the weights after each optimizer step, before the next answers are sampled."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.sender.send(model.named_parameters(), label=f"trl-{state.global_step}")


def reward(completions: list[Any], number: list[int], **_: Any) -> list[float]:
    """1 for an answer that names what was asked for."""
    return [naming.score(of, one[0]["content"]) for of, one in zip(number, completions, strict=True)]


def train(directory: str, rollouts: Any, sending: Any, score: Any = reward, steps: int = STEPS, seed: int = 0) -> None:
    """GRPO with TRL's defaults, but for what a small model on a processor needs."""
    from datasets import Dataset, table  # after transformers, which may hide a package that datasets looks for

    asked = [(n, naming.prompt(n)) for n in range(1, steps * GROUPS + 1)]
    rows = [{"prompt": [{"role": "user", "content": text}], "number": n} for n, text in asked]
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, gradient_checkpointing=False, use_vllm=False, seed=seed,
            per_device_train_batch_size=GROUPS * GROUP, num_generations=GROUP, max_completion_length=TOKENS,
            max_steps=steps, learning_rate=3e-4, lr_scheduler_type="constant", logging_steps=1, save_strategy="no",
            report_to="none", disable_tqdm=True,
        )  # fmt: skip
        GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(directory, dtype="float32"), score, config,
            Dataset(table.InMemoryTable.from_pylist(rows), fingerprint="naming"), rollout_func=rollouts,
            processing_class=AutoTokenizer.from_pretrained(directory), callbacks=[sending],
        ).train()  # fmt: skip


if __name__ == "__main__":
    with Sender(sys.argv[1]) as sender:
        train(sys.argv[2], Rollouts(sys.argv[1]), Sending(sender))
