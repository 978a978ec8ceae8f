"""Measures the cost of each way of publishing: serving with training off and on, for hogwild and fenced, cache reset,
salt and keep.

One daemon after the other, each in phases off, on, on, off of `--seconds`, so that drift of the machine cancels in the
ratio on/off. Load: `--clients` closed-loop clients whose prompts share a long prefix; completions of `--tokens` tokens.
Training: a queue that never empties. The model is a small dense Qwen3, whose prefixes are cached in small blocks.
"""

import itertools
import json
import shutil
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from apollod import foreign_wheels
from apollod.adapters.journal import journal_reader
from benchmarks import report
from benchmarks.clients import clients
from benchmarks.daemon import Daemon, build_model

PREFIX = "The lighthouse keeper wrote in the log that the ferry came late and the harbour was quiet. " * 24
POLICIES = list(itertools.product(("hogwild", "fenced"), ("reset", "salt", "keep")))
QUEUE_A_SECOND = 60  # examples given for each second of a phase: more than any machine learns


@dataclass
class Phase:
    """Measurements of all phases of one kind. `hits` of `queries` prompt tokens were found in the prefix cache."""

    seconds: float = 0.0
    requests: int = 0
    steps: int = 0
    hits: float = 0.0
    queries: float = 0.0
    latency_s: list[float] = field(default_factory=list)


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a phase")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="apollod-bench-") as directory:
        model = build_dense(Path(directory) / "dense", build_model(Path(directory) / "model", "random"))
        for publish, cache in POLICIES:
            name = f"{publish}_{cache}"
            bench = _Bench(Path(directory) / name, model, publish, cache, args.clients, args.tokens)
            off, on = Phase(), Phase()
            try:
                bench.phase(True, 2.0, Phase())  # warm-up, not counted
                for train, into in ((False, off), (True, on), (True, on), (False, off)):
                    bench.phase(train, args.seconds, into)
                if not on.steps:
                    raise SystemExit(f"{name}: no step ran while training was on, nothing was measured; see --seconds")
                figures |= _figures(name, off, on, args.tokens) | bench.pauses(name)
                ratios[f"{name}_serving_kept"] = (on.requests / on.seconds) / (off.requests / off.seconds)
            finally:
                bench.daemon.stop()
    report.report("publish", figures, ratios, {}, threads=2, as_json=args.json)


def build_dense(path: Path, beside: Path) -> Path:
    """A random Qwen3 of two layers with the tokenizer of the model `beside`."""
    foreign_wheels.guard()  # before transformers
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shutil.copytree(
        beside, path, ignore=shutil.ignore_patterns("*.safetensors", "config.json", "generation_config.json")
    )
    vocabulary = json.loads((beside / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    return path


class _Bench:
    def __init__(self, root: Path, model: Path, publish: str, cache: str, clients: int, tokens: int) -> None:
        (root / "inbox").mkdir(parents=True)
        self._journal = root / "state" / "journal.db"
        self.daemon = Daemon(root, model, f'lr = 1e-5\npublish = "{publish}"\ncache = "{cache}"\nalign_every = 0\n')
        self._clients, self._tokens, self._serial = clients, tokens, 0
        self.daemon.start()
        self.daemon.wait_ready()

    def phase(self, train: bool, seconds: float, into: Phase) -> None:
        """Run one phase and add its measurements."""
        if train:
            self._feed(int(seconds * QUEUE_A_SECOND))
        self.daemon.train(train)
        if not train:
            self.daemon.wait(lambda s: s["state"] == "paused" and not s["weights"]["paused"], "to pause")
        before, found, began = self.daemon.status(), self._cached(), time.perf_counter()
        with clients(self.daemon.url, self._clients, self._prompt, self._tokens) as latencies:
            time.sleep(seconds)
            after, counted = self.daemon.status(), len(latencies)
            into.seconds += time.perf_counter() - began
        if train and not after["queue"]["pending"]:
            raise SystemExit("the queue ran empty: the phase did not measure training")
        hits, queries = self._cached()
        into.requests += counted
        into.steps += after["step"] - before["step"]
        into.hits, into.queries = into.hits + hits - found[0], into.queries + queries - found[1]
        into.latency_s += latencies

    def pauses(self, name: str) -> dict[str, float]:
        """Mean seconds from the journal: of a pause, of the wait for an idle engine, and of a step."""
        paused = journal_reader.query(
            self._journal,
            "SELECT (SELECT avg(body ->> '$.seconds') FROM events WHERE kind = 'engine.resumed'),"
            " (SELECT avg(body ->> '$.seconds') FROM events WHERE kind = 'engine.paused'),"
            " (SELECT avg(body ->> '$.seconds') FROM events WHERE kind = 'step.completed')",
        ).rows[0]
        names = ("pause_mean_s", "until_idle_mean_s", "step_mean_s")
        return {f"{name}_{what}": float(value) for what, value in zip(names, paused, strict=True) if value is not None}

    def _feed(self, count: int) -> None:
        lines = []
        for _ in range(max(0, count - self.daemon.status()["queue"]["pending"])):
            self._serial += 1
            words = f"{self._serial}: {PREFIX[:360]}"
            lines.append(
                json.dumps(
                    {"messages": [{"role": "user", "content": words}, {"role": "assistant", "content": PREFIX[:90]}]}
                )
            )
        if lines:
            self.daemon.submit(*lines)

    def _prompt(self, number: int, turn: int) -> str:
        return f"{PREFIX}{number} {turn}"

    def _cached(self) -> tuple[float, float]:
        """Prompt tokens found in the prefix cache, and looked up, since the start."""
        with urllib.request.urlopen(self.daemon.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        hits, queries = (
            sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:prefix_cache_{what}_total"))
            for what in ("hits", "queries")
        )
        return hits, queries


def _figures(name: str, off: Phase, on: Phase, tokens: int) -> dict[str, float]:
    return {
        f"{name}_tokens_per_s_training_off": off.requests * tokens / off.seconds,
        f"{name}_tokens_per_s_training_on": on.requests * tokens / on.seconds,
        f"{name}_latency_p50_s": report.percentile(on.latency_s, 0.5),
        f"{name}_latency_p99_s": report.percentile(on.latency_s, 0.99),
        f"{name}_steps_per_s": on.steps / on.seconds,
        f"{name}_prefix_hits_training_off": off.hits / max(1.0, off.queries),
        f"{name}_prefix_hits_training_on": on.hits / max(1.0, on.queries),
    }


if __name__ == "__main__":
    main()
