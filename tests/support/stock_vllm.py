"""vLLM's own API server, with nothing of apollod in it but the guard against a foreign wheel: `python -m
support.stock_vllm ARGS`."""

import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from apollod import foreign_wheels

ENVIRONMENT = {
    "VLLM_PLUGINS": "none", "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
LORA = (
    "--enable-lora", "--max-loras", "2", "--max-lora-rank", "64", "--lora-target-modules", "q_proj", "k_proj", "v_proj",
    "o_proj", "gate_proj", "up_proj", "down_proj", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj",
)  # fmt: skip
"""what the bridge `lora` needs"""
TESTS = Path(__file__).parents[1]


def started(model: Path, port: int, log: Path, *more: str, **environ: str) -> "subprocess.Popen[bytes]":
    """A stock vLLM that serves `model` as `there`; `more` arguments, and variables besides ENVIRONMENT."""
    command = [
        sys.executable, "-m", "support.stock_vllm", "--model", str(model), "--port", str(port), "--served-model-name",
        "there", "--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", "8",
        "--kv-cache-memory-bytes", str(256 << 20), "--distributed-executor-backend", "uni", *more,
    ]  # fmt: skip
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("APOLLOD_")} | ENVIRONMENT | environ
    with log.open("wb") as out:
        return subprocess.Popen(
            command, env=environment | {"PYTHONPATH": path}, stdout=out, stderr=out, start_new_session=True
        )


def ended(vllm: "subprocess.Popen[bytes]") -> None:
    """End it and wait: killed at once it would leave shared memory behind."""
    vllm.terminate()
    with suppress(subprocess.TimeoutExpired):
        vllm.wait(180)
    with suppress(ProcessLookupError):
        os.killpg(vllm.pid, signal.SIGKILL)
    vllm.wait()


foreign_wheels.guard_lazily()
if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
