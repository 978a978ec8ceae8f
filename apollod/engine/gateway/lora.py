"""Bridge `lora`: the engines keep the weights that they have loaded, the base, and get each version as an adapter,
which approximates the difference. Far less is sent, generation is never held, and it is not exact.

Each version is an adapter under a name of its own: engines find cached prefixes by an adapter's name and path, and one
that was loaded anew under the same name would serve those of the old weights. Version 0 is an adapter of zeros, so that
an engine which cannot load adapters is noticed at the start.

Source: vllm/entrypoints/serve/lora, 0.26 to 0.32; SGLang's docs, advanced features, LoRA serving, 0.5.
"""

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from apollod.adapters.system.files import fsync_dir, fsync_file, put_in_place
from apollod.engine.gateway.adapter import Adapter, is_linear, make
from apollod.engine.gateway.bridges import RECORD, Bridge, Staged, restart
from apollod.engine.gateway.receivers import CONTROL_S, Receiver, object_of
from apollod.engine.gateway.weights import TRAINABLE, Weights
from apollod.errors import ModelRefused, SendFailed
from apollod.store.access import TABLE
from apollod.store.fingerprint import directory_fingerprint
from apollod.store.model_files import StoredTensor, read_files
from apollod.wire.engine_terms import SendTerms

logger = logging.getLogger("apollod.gateway")

NAMED = "apollo-v"
"""how the names of our adapters begin; the rest is the version and a digest of the file"""
KEPT = 2
FEW = 0.9
"""share of the change below which a version is warned of"""
IDLE_S = 0.2
"""between looks whether requests still use an adapter"""
FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_STARTED = {
    "vllm": "start that vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-loras 2 --max-lora-rank "
    "{rank} --lora-target-modules {modules}, or set [weights] command",
    "sglang": "start that SGLang with --enable-lora --max-lora-rank {rank} --lora-target-modules {modules}, or set "
    "[weights] command",
}
"""Without --lora-target-modules vLLM 0.32 on a CPU wraps the head, too, and ends when one request for log-probabilities
of a prompt comes beside another."""


class Lora(Bridge):
    """A directory for each adapter, which receivers load. Those of the last two versions are kept, and those that
    requests still use: vLLM may read one again."""

    def __init__(self, terms: SendTerms, weights: Weights) -> None:
        """Remove what an earlier life left. Raises ModelRefused if the base is not there or is another model, or if no
        layer takes an adapter; OSError for a directory that cannot be made."""
        layers = [name for name in weights.changing if is_linear(weights.tensors[name])]
        self._modules = " ".join(sorted({name.split(".")[-2] for name in layers}))
        if not layers:
            raise ModelRefused(f"{weights.directory} has no layer that takes an adapter", "choose another bridge")
        self._terms, self._directory = terms, Path(terms.directory)
        self._base = Base(terms, weights)
        self._receivers: dict[str, Receiver] = {}
        self._retiring = set[asyncio.Task[None]]()
        self._warned = False
        self._directory.mkdir(parents=True, exist_ok=True)
        for left in self._written():
            shutil.rmtree(left, ignore_errors=True)

    def stage(self, weights: Weights, version: int) -> Staged:
        """Make the adapter of this version. Source: PEFT's adapter_config.json and adapter_model.safetensors."""
        try:
            base, layout = self._base.find()
            adapter = make(
                [weights.tensors[name] for name in weights.changing], self._terms.rank,
                lambda name: weights.tensor(name).cpu(),
                lambda name: _read(base, layout[name]),
            )  # fmt: skip
        except ModelRefused as refused:
            raise SendFailed(str(refused), refused.hint) from refused
        fingerprint = weights.fingerprint()
        record = {
            "version": version, "fingerprint": fingerprint, "base": self._base.fingerprint, "rank": self._terms.rank,
            "carried": adapter.carried, "left_out": adapter.left_out,
        }  # fmt: skip
        self._warn(version, adapter)
        name = self._write(version, adapter, record)
        self._prune()
        size = (self._directory / name / FILE).stat().st_size
        return Staged(version, fingerprint, size, name, adapter.carried, len(adapter.left_out))

    async def deliver(self, staged: Staged, receiver: Receiver, loaded: Callable[[], None]) -> float:
        """The receiver loads the adapter, new requests name it, and the one before is unloaded when the requests that
        use it have ended, or with the next version. Nothing is held."""
        self._receivers[receiver.url] = receiver
        before, listed = receiver.adapter, await _listed(receiver)
        for name in listed - {before, staged.name}:
            await self._unload(receiver, name)
        receiver.adapter = staged.name if staged.name in listed else await self._load(receiver, staged.name)
        loaded()
        if before not in ("", staged.name):
            task = asyncio.create_task(self._retire(receiver, before))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        return 0.0

    async def _load(self, receiver: Receiver, name: str) -> str:
        """Load an adapter, or have the receiver restarted with it if it cannot load one while it runs. Returns the name
        by which requests ask for it; empty: it is part of the model, as the command wants it."""
        place = receiver.place(self._directory, name)
        path = "/v1/load_lora_adapter" if receiver.terms.dialect == "vllm" else "/load_lora_adapter"
        answer = await receiver.ask(path, {"lora_name": name, "lora_path": place}, self._terms.timeout_s)
        if answer.status_code == 200 and object_of(answer).get("success") is not False:
            return name
        if self._terms.command:
            await restart(self._terms.command, place, receiver, self._terms.timeout_s)
            return name if name in await _listed(receiver) else ""
        raise SendFailed(
            f"{receiver.url} loads no adapter while it runs: {path} answered {answer.status_code}: {answer.text[:300]}",
            _STARTED[receiver.terms.dialect].format(rank=self._terms.rank, modules=self._modules),
        )

    async def _retire(self, receiver: Receiver, name: str) -> None:
        while receiver.adapter != name:
            if not receiver.running[name]:
                await self._unload(receiver, name)
                break
            await anyio.sleep(IDLE_S)

    async def _unload(self, receiver: Receiver, name: str) -> None:
        """Unload an adapter; one that cannot be is tried again with the next version."""
        path = "/v1/unload_lora_adapter" if receiver.terms.dialect == "vllm" else "/unload_lora_adapter"
        with contextlib.suppress(SendFailed):
            await receiver.ask(path, {"lora_name": name}, CONTROL_S)

    def _write(self, version: int, adapter: Adapter, record: dict[str, Any]) -> str:
        """Write a directory durably; returns its name, which is the adapter's."""
        temporary = self._directory / f"{NAMED}new"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        save_file(adapter.tensors, temporary / FILE, metadata={"format": "pt"})
        config = {
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "inference_mode": True,
            "r": self._terms.rank, "lora_alpha": self._terms.rank, "lora_dropout": 0.0,
            "target_modules": adapter.modules, "base_model_name_or_path": str(self._base.directory),
        }  # fmt: skip
        for file, value in ((CONFIG, config), (RECORD, record)):
            (temporary / file).write_bytes(msgspec.json.encode(value))
            fsync_file(temporary / file)
        fsync_file(temporary / FILE)
        fsync_dir(temporary)
        with (temporary / FILE).open("rb") as written:
            name = f"{NAMED}{version}-{hashlib.file_digest(written, 'blake2b').hexdigest()[:8]}"
        put_in_place(temporary, self._directory / name)
        shutil.rmtree(temporary, ignore_errors=True)
        return name

    def _prune(self) -> None:
        used = {name for one in self._receivers.values() for name in [*one.running]}
        newest = sorted(self._written(), key=lambda path: path.stat().st_mtime_ns)
        for old in newest[:-KEPT]:
            if old.name not in used:
                shutil.rmtree(old, ignore_errors=True)

    def _written(self) -> list[Path]:
        return [path for path in self._directory.glob(f"{NAMED}*") if (path / RECORD).is_file()]

    def _warn(self, version: int, adapter: Adapter) -> None:
        """One line, until a version is above the limit again."""
        few = adapter.carried < FEW
        if few and not self._warned:
            logger.warning(
                "version %d: an adapter of rank %d carries %.0f %% of the change of the weights, and nothing of %d "
                'tensors; raise [weights] rank, or send whole weights with bridge = "disk"',
                version, self._terms.rank, 100 * adapter.carried, len(adapter.left_out),
            )  # fmt: skip
        self._warned = few


class Base:
    """The weights that the engines have loaded: `[weights] base`, else those before the first step."""

    def __init__(self, terms: SendTerms, weights: Weights) -> None:
        self._given, self._kept, self._weights = terms.base, Path(terms.kept), weights
        self.directory = Path()
        self.fingerprint = ""
        self.find()

    def find(self) -> tuple[Path, dict[str, StoredTensor]]:
        """The directory and its tensors. Before the weights are kept, at the first start, the model directory has them.
        Raises ModelRefused if they are not there, are of another model, or changed."""
        directory = Path(self._given).expanduser() if self._given else self._kept
        if not self._given and not self._kept.is_dir():
            directory = self._weights.directory
            if (directory / TABLE).exists():
                raise ModelRefused(
                    f"{directory} has what was learned, and the weights before the first step are not in {self._kept}",
                    "set [weights] base to the model directory that the engines have loaded",
                )
        layout = {tensor.name: tensor for file in read_files(directory) for tensor in file.tensors}
        for name in self._weights.changing:
            mine, there = self._weights.tensors[name], layout.get(name)
            if there is None or there.shape != mine.shape or there.dtype not in TRAINABLE:
                raise ModelRefused(
                    f"{name} of {self._weights.directory} is not in {directory}, or has another shape there",
                    "set [weights] base to the model directory that the engines have loaded",
                )
        if directory != self.directory:
            found = directory_fingerprint(directory)
            if self.fingerprint not in ("", found):
                raise ModelRefused(
                    f"the weights in {directory} are not those before the first step, which were in {self.directory}",
                    "set [weights] base to the model directory that the engines have loaded",
                )
            self.directory, self.fingerprint = directory, found
        return directory, layout


def _read(directory: Path, stored: StoredTensor) -> Tensor:
    """A tensor of the base. Raises ModelRefused for a file that ends inside it."""
    data, dtype = bytearray(stored.bytes), getattr(torch, stored.dtype)
    with (directory / stored.file).open("rb") as file:
        file.seek(stored.start)
        if file.readinto(data) != stored.bytes:
            raise ModelRefused(f"{directory / stored.file} ends inside {stored.name}", "copy the model again")
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).view(stored.shape)


async def _listed(receiver: Receiver) -> set[str]:
    """Names of our adapters that the receiver has loaded."""
    answer = await receiver.ask("/v1/models", None, CONTROL_S, method="GET")
    data = object_of(answer).get("data")
    ids = [one.get("id") for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    return {name for name in ids if isinstance(name, str) and name.startswith(NAMED)}
