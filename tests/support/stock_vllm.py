"""vLLM's own API server, with nothing of apollod in it but the guard against a foreign wheel: `python -m
support.stock_vllm ARGS`."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

from apollod import foreign_wheels

ENVIRONMENT = {
    "VLLM_PLUGINS": "none", "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
TESTS = Path(__file__).parents[1]


def started(model: Path, port: int, log: Path) -> "subprocess.Popen[bytes]":
    """A stock vLLM that serves `model` as `there`."""
    command = [
        sys.executable, "-m", "support.stock_vllm", "--model", str(model), "--port", str(port), "--served-model-name",
        "there", "--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "512", "--max-num-seqs", "8",
        "--kv-cache-memory-bytes", str(256 << 20), "--distributed-executor-backend", "uni",
    ]  # fmt: skip
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("APOLLOD_")} | ENVIRONMENT
    with log.open("wb") as out:
        return subprocess.Popen(
            command, env=environment | {"PYTHONPATH": path}, stdout=out, stderr=out, start_new_session=True
        )


foreign_wheels.guard_lazily()
if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
