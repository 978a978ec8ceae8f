"""The whole daemon on a GPU: vLLM serves a small model that learns through CUDA IPC, and two lives give the same
bits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.daemon import VLLM, Daemon, chat_line

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

QUESTION, ANSWER, STEPS = "what is it called?", "it is called miso.", 12
GPU_ARGS = ["--gpu-memory-utilization", "0.2", "--gdn-prefill-backend", "triton"]
START_S = 420.0  # vLLM compiles and captures graphs at its first start


@pytest.fixture(scope="module", params=["qwen3_5", "qwen3", "qwen3_moe"])
def model(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three architectures: hybrid, dense (which every vLLM from 0.26 on knows), and a mixture of experts (not run on a
    GPU yet; on CPU vLLM packs experts, which is refused)."""
    if request.param == "qwen3_5":
        from vllm.model_executor.models.registry import ModelRegistry

        if "Qwen3_5ForCausalLM" not in ModelRegistry.get_supported_archs():
            pytest.skip("this vLLM does not register Qwen3_5ForCausalLM (before 0.27, without a plugin for it)")
        return tiny_model
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    sizes = experts if request.param == "qwen3_moe" else {}
    return random_model(tiny_model, tmp_path_factory.mktemp("random") / request.param, request.param, sizes)


def random_model(tokenizer_of: Path, path: Path, kind: str = "qwen3", sizes: Mapping[str, int] = {}) -> Path:
    """A random model of this kind with the tokenizer of another one."""
    code = (
        "import json, sys, torch; from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1]); torch.manual_seed(0)\n"
        "config = CONFIG_MAPPING[sys.argv[3]](vocab_size=-(-len(tokenizer) // 64) * 64, hidden_size=256, "
        "intermediate_size=512, num_hidden_layers=4,\n"
        "    num_attention_heads=4, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True, "
        "max_position_embeddings=1024,\n"
        "    eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **json.loads(sys.argv[4]))\n"
        "AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(sys.argv[2]); "
        "tokenizer.save_pretrained(sys.argv[2])\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, str(tokenizer_of), str(path), kind, json.dumps(dict(sizes))]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return path


@pytest.fixture
def daemon(model: Path, tmp_path: Path) -> Iterator[Daemon]:
    made = start(model, tmp_path)
    yield made
    made.kill()


def start(model: Path, root: Path) -> Daemon:
    daemon = Daemon(root, model, engine=VLLM, as_users_do=True)
    daemon.config.write_text(daemon.config.read_text().replace("args = [", f"args = [{json.dumps(GPU_ARGS)[1:-1]}, "))
    daemon.start()
    daemon.wait(lambda s: s["state"] in ("serving", "training", "paused"), "ready", START_S)
    return daemon


def learn(daemon: Daemon) -> str:
    """The fingerprint after the lesson."""
    daemon.drop("learn.jsonl", *[chat_line(QUESTION + "?" * i, ANSWER) for i in range(STEPS)])
    return str(daemon.wait_learned(STEPS)["weights"]["fingerprint"])


def test_what_is_learned_is_served_from_the_same_memory(daemon: Daemon) -> None:
    body = {
        "model": "tiny",
        "messages": json.loads(chat_line(QUESTION, ANSWER))["messages"],
        "add_generation_prompt": False,
    }
    ids = daemon.post("/tokenize", body)[1]["tokens"]
    before, logprob = daemon.status(), daemon.logprob(ids)
    assert before["weights"]["bridge"] == "cuda-ipc" and before["weights"]["frozen"] == 0
    learn(daemon)
    after = daemon.status()
    assert daemon.logprob(ids) > logprob + 0.5
    assert after["weights"]["fingerprint"] != before["weights"]["fingerprint"]
    assert after["engine"]["pid"] == before["engine"]["pid"] and after["engine"]["restarts"] == 0


def test_a_killed_trainer_comes_back_to_the_same_memory(daemon: Daemon) -> None:
    """The engine's handles serve a second attach."""
    learned = learn(daemon)
    before = daemon.status()
    os.kill(before["trainer"]["pid"], signal.SIGKILL)
    after = daemon.wait(
        lambda s: s["trainer"]["ready"] and s["trainer"]["pid"] not in (None,
        before["trainer"]["pid"]) and s["state"] == "serving",
        "the trainer to come back", 240,
    )  # fmt: skip
    assert after["weights"]["fingerprint"] == learned and after["engine"]["pid"] == before["engine"]["pid"]
    daemon.drop("more.jsonl", chat_line("and now?", "still miso."))
    daemon.wait_learned(STEPS + 1)


def test_two_lives_give_the_same_bits(model: Path, tmp_path: Path) -> None:
    found = []
    for life in ("a", "b"):
        (tmp_path / life).mkdir()
        daemon = start(model, tmp_path / life)
        try:
            found.append(learn(daemon))
        finally:
            daemon.stop()
    assert found[0] == found[1]
