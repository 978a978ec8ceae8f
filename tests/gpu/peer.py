"""One side of a shared GPU memory, as a process: `python peer.py owner BYTES...` or `python peer.py trainer`.

A command a line on stdin, a JSON object a line on stdout. The owner prints its handles; the trainer opens those it is
sent.
"""

import base64
import hashlib
import json
import sys
from typing import Any

import msgspec
import torch

from apollod.engine.load.shared_parameters import export_cuda
from apollod.errors import ShareRefused
from apollod.trainer.bind.mapped_memory import open_cuda_handle
from apollod.wire.manifest import CudaHandle


def answer(**body: Any) -> None:
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def digest(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.cpu().numpy().tobytes()).hexdigest()


def main() -> None:
    memory: list[torch.Tensor] = []
    if sys.argv[1] == "owner":
        for seed, size in enumerate(map(int, sys.argv[2:])):
            generator = torch.Generator("cuda").manual_seed(seed)
            memory.append(torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator))
        try:
            answer(handles=[base64.b64encode(msgspec.msgpack.encode(export_cuda(flat))).decode() for flat in memory])
        except ShareRefused as refused:
            answer(refused=str(refused))
    for line in sys.stdin:
        command, *given = json.loads(line)
        match command:
            case "open":
                try:
                    memory.append(open_cuda_handle(msgspec.msgpack.decode(base64.b64decode(given[0]), type=CudaHandle)))
                    answer(bytes=memory[-1].numel(), device=str(memory[-1].device))
                except ShareRefused as refused:
                    answer(refused=str(refused))
            case "digest":
                answer(digest=digest(memory[given[0]]))
            case "fill":
                memory[given[0]].fill_(given[1])
                torch.cuda.synchronize()
                answer(done=True)
            case "work":  # until it is killed
                answer(done=True)
                while True:
                    memory[0].add_(1)
                    torch.cuda.synchronize()


main()
