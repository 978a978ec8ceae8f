"""A trainer of two processes whose tensors are sharded unevenly: `sharded_sender.py URL MODEL ANSWER`, with RANK and
the other variables of torchrun.

It sends two versions, and between them three that are refused: by a wrong name at once, by a NaN at the end, and by an
address at which nobody is. ANSWER, by each rank: what was sent, and what was said.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from apollod.foreign_wheels import guard_lazily
from apollod.sender import Sender, SendRefused, take_part
from apollod.trainer.bind import live_fingerprint

CHUNK = 100_000
"""bytes that are announced at once: a version takes several"""


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    """The fingerprint of weights, as apollod's status tells it."""
    found = ((name, live_fingerprint.tensor_fingerprint(one)) for name, one in weights.items())
    return live_fingerprint.format(live_fingerprint.model_fingerprint(found))


def moved(weights: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Other weights, the same on all ranks."""
    torch.manual_seed(seed)
    return {name: one + (0.01 * torch.randn(one.shape)).to(one.dtype) for name, one in weights.items()}


def main() -> None:
    url, directory, answer = sys.argv[1:]
    guard_lazily()
    from transformers import AutoModelForCausalLM

    dist.init_process_group("gloo")
    mesh, first, told = init_device_mesh("cpu", (2,)), dist.get_rank() == 0, []
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    weights = dict(model.named_parameters())
    right, nowhere = Sender(url, chunk_bytes=CHUNK), Sender("http://127.0.0.1:9", chunk_bytes=CHUNK)
    for version, (sender, planted) in enumerate(
        ((right, ""), (right, "name"), (right, "nan"), (nowhere, ""), (right, ""))
    ):
        whole = moved({name: one.detach() for name, one in weights.items()}, version)
        if planted == "nan":
            list(whole.values())[-1].view(-1)[-1] = torch.nan
        gathered = list[str]()

        def sharded() -> Iterator[tuple[str, torch.Tensor]]:
            for number, (name, one) in enumerate(whole.items()):  # noqa: B023 - used up before the next version
                gathered.append(name)  # noqa: B023
                shown = "nobody.weight" if planted == "name" and number == 0 else name  # noqa: B023
                yield shown, distribute_tensor(one, mesh, [Shard(0)])

        error = ""
        if first:
            try:
                sender.send(sharded(), label=f"v{version}")
            except SendRefused as refused:
                error = str(refused)
        else:
            take_part(sharded())
        told.append({"sent": fingerprint(whole), "error": error, "all": gathered == list(whole)})
    right.close()
    nowhere.close()
    dist.barrier()
    Path(f"{answer}.{dist.get_rank()}").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
