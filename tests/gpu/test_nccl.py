"""The trainer's memory of a gateway on a GPU, and weights by NCCL from vLLM's own sender, which takes two. Not run on a
GPU yet."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import torch
from safetensors.torch import load_file, save_file

from apollod.adapters.weight_receiver import WeightReceiver
from apollod.engine.gateway.device_memory import on_device
from apollod.engine.gateway.weights import Weights
from apollod.store.fingerprint import directory_fingerprint
from apollod.testing.daemon import free_port
from apollod.wire.receiver_messages import Announced, Join

SENDER = """
import sys, torch
from vllm.distributed.weight_transfer.nccl_common import stateless_init_process_group
torch.cuda.set_device(1)
group = stateless_init_process_group("127.0.0.1", int(sys.argv[1]), 0, 2, torch.device("cuda", 1))
for value, dtype in ((1.5, torch.bfloat16), (2.5, torch.float32)):
    group.broadcast(torch.full((300,), value, dtype=dtype, device="cuda:1"), src=0)
torch.cuda.synchronize()
sys.stdin.read()
"""


OURS = """
import json, sys, torch
from apollod.engine.gateway.nccl_channel import NcclChannels
from apollod.wire.engine_terms import ReceiverTerms, SendTerms
terms = ReceiverTerms("http://127.0.0.1:8000", sys.argv[1])
channel = NcclChannels(SendTerms("nccl", (terms,), "", (), 120.0))(terms, 2)
print(json.dumps(channel.place()), flush=True)
channel.complete()
for value, dtype in ((1.5, torch.bfloat16), (2.5, torch.float32)):
    channel.broadcast(torch.full((300,), value, dtype=dtype, device="cuda"))
sys.stdin.read()
"""


def test_a_model_is_loaded_into_device_memory_and_read_from_it(tmp_path: Path) -> None:
    save_file({"w": torch.randn(500, 70).bfloat16(), "n": torch.randn(33)}, tmp_path / "model.safetensors")
    weights = Weights(tmp_path, "disk")
    memory, handle = on_device(weights.manifest.storages[0].bytes)
    handle.check()
    weights.load(memory)
    assert weights.tensor("w").is_cuda and weights.fingerprint() == directory_fingerprint(tmp_path)
    weights.tensor("n").fill_(3.0)
    assert weights.fingerprint() != directory_fingerprint(tmp_path)


def test_what_vllm_broadcasts_is_what_the_file_holds(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL takes two GPUs")
    port = free_port()
    sender = subprocess.Popen([sys.executable, "-c", SENDER, str(port)], stdin=subprocess.PIPE, env=os.environ)
    check_received(sender, Join("127.0.0.1", port, 1, 2, "vllm", "plain", 120.0, "nccl"), tmp_path)


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_what_the_gateway_broadcasts_arrives_by_an_id_and_by_a_store(tmp_path: Path, dialect: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL takes two GPUs")
    sender = subprocess.Popen(
        [sys.executable, "-c", OURS, dialect], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"},
    )  # fmt: skip
    assert sender.stdout is not None
    place = json.loads(sender.stdout.readline())
    if dialect == "vllm":
        unique_id = base64.b64decode(place["nccl_unique_id_b64"])
        wanted = Join("", 0, 1, 2, "vllm", "plain", 120.0, "nccl", unique_id)
    else:
        wanted = Join(place["master_address"], place["master_port"], 1, 2, "apollod", "nested", 120.0, "nccl")
    check_received(sender, wanted, tmp_path)


def check_received(sender: "subprocess.Popen[bytes]", wanted: Join, directory: Path) -> None:
    """Receive what both senders above send."""
    announced = [Announced("a", "bfloat16", (300,)), Announced("b", "float32", (300,))]

    async def receive() -> None:
        receiver = WeightReceiver(directory / "log")
        try:
            await receiver.join(wanted)
            await receiver.receive(directory / "new", announced, "each")
        finally:
            await receiver.close()

    try:
        anyio.run(receive)
    finally:
        sender.kill()
        sender.communicate()
    found = load_file(directory / "new")
    assert (found["a"] == 1.5).all() and (found["b"] == 2.5).all()
