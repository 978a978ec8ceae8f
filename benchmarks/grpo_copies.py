"""The loop against which benchmarks/grpo.py measures: stock vLLM samples, a plain Hugging Face model learns, and the
weights go back to vLLM through `save_pretrained` and vLLM's own `reload_weights`.

`Copies` starts it as a process and asks; as a module it answers. What it may choose is chosen in its favour: one
process, without HTTP between engine and trainer; each side may have all threads, since the other waits meanwhile;
float32 on CPUs without bf16 instructions, where products in bf16 take five times as long in vLLM (models with linear
attention have to be bf16 there); several groups are sampled together, and the weights are copied once for all of them;
no journal, no undo, no fingerprint. It scores with the same functions and learns the same loss.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.grpo_spans import Measured, Span, cpu_seconds

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
}  # fmt: skip
"""Threads that sleep while they wait: ones that spin take ten times the time if a neighbour needs a core"""
LOW, HIGH = 0.8, 1.2
APART_MAX = 0.05
"""mean |log-probability of the engine - of the trainer| right after a copy"""


class Copies:
    """The process, ready."""

    def __init__(self, model: Path, log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.grpo_copies", str(model)]
        env = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
        with open(log, "wb") as out:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=env
            )
        self._log = log
        self._answered()

    def measure(self, seconds: float, groups: int, threads: int, into: Measured) -> None:
        """Add a window: whole rounds until so many seconds are over: sample `groups` groups, learn each, copy the
        weights."""
        assert self._child.stdin is not None
        cpu = cpu_seconds(self._child.pid)
        self._child.stdin.write(json.dumps({"seconds": seconds, "groups": groups, "threads": threads}) + "\n")
        self._child.stdin.flush()
        said = self._answered()
        if said["apart"] > APART_MAX:
            raise SystemExit(f"engine and trainer are {said['apart']:.3f} nats apart after a copy: it copied nothing")
        spans = [[Span(*one) for one in said[what]] for what in ("sampling", "steps", "copies")]
        into.add(Span(*said["window"]), *spans, cpu=cpu_seconds(self._child.pid) - cpu)

    def end(self) -> None:
        """Close its stdin and wait for its exit."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(60)

    def _answered(self) -> Any:
        assert self._child.stdout is not None
        if not (line := self._child.stdout.readline()):
            raise SystemExit(f"the loop of copies ended before it answered: {self._log.read_text()[-2000:]}")
        return json.loads(line)


# --- the process --------------------------------------------------------------------------------------------------


def main(model: str) -> None:
    """Build, warm up, then answer questions until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM and transformers print
    with tempfile.TemporaryDirectory(prefix="apollod-copies-") as directory:
        loop = _Loop(model, Path(directory))
        loop.run(0.0, 1, 1)  # warms up
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(loop.run(**asked)), file=answers, flush=True)


class _Loop:
    def __init__(self, model: str, place: Path) -> None:
        from apollod import foreign_wheels

        foreign_wheels.guard()
        import torch
        from transformers import AutoModelForCausalLM
        from vllm import LLM, SamplingParams

        from benchmarks.grpo_task import ANSWER_TOKENS, GROUP

        self._set_threads = torch.set_num_threads  # vLLM replaces it
        has_bf16 = torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "AVX2")
        dtype = torch.bfloat16 if has_bf16 else torch.float32
        needs_bf16 = "linear_attention" in (
            json.loads((Path(model) / "config.json").read_text()).get("layer_types") or ()
        )
        self._engine = LLM(
            model=model, dtype="bfloat16" if has_bf16 or needs_bf16 else "float32", enforce_eager=True,
            max_model_len=1024, max_num_seqs=32, distributed_executor_backend="uni", kv_cache_memory_bytes=512 << 20,
        )  # fmt: skip
        self._sampling = SamplingParams(
            n=GROUP, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=1.0,
            max_tokens=ANSWER_TOKENS, logprobs=0,
        )  # fmt: skip
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-6, fused=True)
        self._place, self._number, self._apart = place, 0, list[float]()

    def run(self, seconds: float, groups: int, threads: int) -> dict[str, Any]:
        """See `Copies.measure`. At least one round."""
        self._set_threads(threads)
        sampling, steps, copies = list[Span](), list[Span](), list[Span]()
        self._apart.clear()
        began = time.time()
        while not copies or time.time() - began < seconds:
            sampled, learned = self.round(groups)
            sampling.append(sampled)
            steps += learned
            copies.append(self.copied())
        window = Span(began, time.time())
        apart = sum(self._apart) / len(self._apart)
        return {"window": window, "sampling": sampling, "steps": steps, "copies": copies, "apart": apart}

    def round(self, groups: int) -> tuple[Span, list[Span]]:
        """Sample so many groups, and learn them one after the other."""
        from benchmarks import grpo_task

        began = time.time()
        numbers = range(self._number + 1, self._number + groups + 1)
        self._number += groups
        asked: list[Any] = [[{"role": "user", "content": grpo_task.prompt(number)}] for number in numbers]
        answered = self._engine.chat(asked, self._sampling, use_tqdm=False)
        tokens = sum(len(choice.token_ids) for one in answered for choice in one.outputs)
        sampled, steps = Span(began, time.time(), tokens), list[Span]()
        for place, (number, one) in enumerate(zip(numbers, answered, strict=True)):
            began = time.time()
            scores = [grpo_task.score(number, choice.text) for choice in one.outputs]
            prompt = list(one.prompt_token_ids or ())
            rows = [prompt + list(choice.token_ids) for choice in one.outputs]
            apart = self._learn(rows, len(prompt), [_logprobs(choice) for choice in one.outputs], scores)
            if not place:
                self._apart.append(apart)
            steps.append(Span(began, time.time(), sum(map(len, rows))))
        return sampled, steps

    def _learn(self, rows: list[list[int]], prompt: int, mu: list[list[float]], scores: list[float]) -> float:
        """One step of GRPO on answers after a prompt of so many tokens; the mean |logp - mu|."""
        import torch

        from apollod.wire.rollouts import advantages

        longest = max(map(len, rows))
        ids = torch.tensor([row + row[-1:] * (longest - len(row)) for row in rows])
        logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=longest - prompt + 1).logits[:, :-1]
        found = logits.float().log_softmax(-1).gather(2, ids[:, prompt:, None])[..., 0]
        loss, apart = torch.zeros(()), 0.0
        better = advantages(scores) or [0.0] * len(rows)
        for logps, sampler, advantage in zip(found, mu, better, strict=True):
            old = torch.tensor(sampler)
            ratio = (logps[: len(old)] - old).exp()
            bounded = ratio.clamp(max=HIGH) if advantage >= 0 else ratio.clamp(min=LOW)
            loss = loss - advantage * bounded.mean() / len(rows)
            apart += (logps[: len(old)].detach() - old).abs().mean().item() / len(rows)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return apart

    def copied(self) -> Span:
        """Write the weights, and let the engine read them."""
        began = time.time()
        self._model.save_pretrained(self._place)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(self._place)})
        self._engine.reset_prefix_cache()
        return Span(began, time.time())


def _logprobs(choice: Any) -> list[float]:
    pairs = zip(choice.logprobs, choice.token_ids, strict=True)
    return [said[token].logprob for said, token in pairs]


if __name__ == "__main__":
    main(*sys.argv[1:])
