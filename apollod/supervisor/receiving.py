"""Keeps, as long as the daemon lives, what outside trainers send: groups of processes that were joined, and which
tensors of the update under way were received."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio.to_thread

from apollod.adapters import update_files
from apollod.adapters.update_files import Manifest, Received
from apollod.adapters.weight_receiver import WeightReceiver
from apollod.errors import ReceiveFailed
from apollod.supervisor.sections import ControlSection
from apollod.wire.receiver_messages import Announced, Backend, Join, Layout
from apollod.wire.receiver_messages import Received as TensorFile
from apollod.wire.tensor_handles import Handle

GROUPS_MAX = 4
"""groups at once; each is a process of 300 MB"""


class Receiving:
    """One update is received at a time, and one call about it. A group is a process of its own, which ends with its
    first failure; so is what takes tensors by their handles, a group of nobody else."""

    def __init__(self, log: Path, directory: Path) -> None:
        """`log`: file for what the processes print; `directory`: for what is received."""
        self._log, self._directory = log, directory
        self._update = 0
        self._targets: frozenset[str] = frozenset()
        self._manifest: Manifest | None = None
        self._busy = False
        self._groups: dict[str, WeightReceiver] = {}
        self._backends: dict[str, Backend] = {}

    # --- the update under way -----------------------------------------------------------------------------------------

    def begin(self, update: int) -> None:
        """Begin a new update, of which nothing was received."""
        self._update, self._targets, self._manifest = update, frozenset(), None

    def add(self, update: int, found: Sequence[Received]) -> None:
        """Note the tensors of these files."""
        if update == self._update:
            self._targets = self._targets.union(*(one.targets for one in found))

    def targets(self, update: int) -> frozenset[str]:
        """Names in the model directory of all tensors that were received for this update."""
        return self._targets if update == self._update else frozenset()

    async def manifest(self, model_dir: Path) -> Manifest:
        """Tensors of the model, whose headers are read once an update. Raises ModelRefused."""
        if self._manifest is None:
            self._manifest = await anyio.to_thread.run_sync(Manifest, model_dir)
        return self._manifest

    def enter(self) -> bool:
        """Begin to receive; False if another call does."""
        if self._busy:
            return False
        self._busy = True
        return True

    def leave(self) -> None:
        """End what `enter` began."""
        self._busy = False

    # --- groups -------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Names of the groups that were joined."""
        return list(self._groups)

    def backend(self, name: str) -> Backend:
        """The way of tensors from a group that was joined; gloo if there is none of this name."""
        return self._backends.get(name, "gloo")

    async def join(self, name: str, wanted: Join) -> float:
        """Join a group, in place of one with the same name; the seconds that took. Raises ReceiveFailed."""
        receiver = await self.stand_by(name)
        self._backends[name] = wanted.backend
        try:
            return (await receiver.join(wanted)).seconds
        except BaseException:
            await self.leave_group(name)
            raise

    async def stand_by(self, name: str) -> WeightReceiver:
        """Make the process that copies tensors by their handles, in place of a group with the same name. Raises
        ReceiveFailed."""
        await self.leave_group(name)
        if len(self._groups) >= GROUPS_MAX:
            raise ReceiveFailed(
                f"{GROUPS_MAX} groups were joined already ({', '.join(self._groups)})", "leave one of them first"
            )
        receiver = self._groups[name] = WeightReceiver(self._log)
        return receiver

    async def leave_group(self, name: str) -> bool:
        """Leave a group; False if there is none of this name."""
        receiver = self._groups.pop(name, None)
        self._backends.pop(name, None)
        if receiver is not None:
            await receiver.close()
        return receiver is not None

    async def receive(
        self, name: str, tensors: Sequence[Announced], layout: Layout, packed_bytes: int, manifest: Manifest
    ) -> list[Received]:
        """Receive tensors from a group into a file. Raises ReceiveFailed, RecordRefused for what the model does not
        have; the group has to be joined again then."""
        return await self._received(
            name, tensors, manifest, lambda receiver, part: receiver.receive(part, tensors, layout, packed_bytes)
        )

    async def take(
        self, name: str, tensors: Sequence[Announced], handles: Sequence[Handle], terms: ControlSection,
        manifest: Manifest,
    ) -> list[Received]:  # fmt: skip
        """Copy tensors by their handles into a file; raises as `receive` does."""
        return await self._received(
            name, tensors, manifest,
            lambda receiver, part: receiver.take(part, tensors, handles, terms.directories, terms.receive_s),
        )  # fmt: skip

    async def _received(
        self, name: str, tensors: Sequence[Announced], manifest: Manifest,
        come: Callable[[WeightReceiver, Path], Awaitable[TensorFile]],
    ) -> list[Received]:  # fmt: skip
        began = time.monotonic()
        receiver = self._groups.get(name)
        if receiver is None:
            raise ReceiveFailed(f"no group {name!r} was joined", "initialise the group first")
        try:
            plain = [(one.name, one.dtype.removeprefix("torch."), tuple(one.shape)) for one in tensors]
            targets = manifest.checked(plain)
            part = await anyio.to_thread.run_sync(update_files.temporary, self._directory)
            found = await come(receiver, part)
            await anyio.to_thread.run_sync(update_files.put, part, found.digest)
        except BaseException:
            await self.leave_group(name)
            raise
        return [Received(found.digest, targets, len(tensors), found.bytes, time.monotonic() - began)]
