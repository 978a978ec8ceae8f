"""The thread that writes a checkpoint while the trainer goes on with the next steps."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from apollod.errors import ApolloError, LinkClosed, SyncError, WeightsDamaged
from apollod.failpoints import failpoint
from apollod.trainer import checkpoint
from apollod.trainer.model_dir import ModelDir
from apollod.trainer.snapshot import Snapshot
from apollod.wire.messages import CheckpointWritten, OptimizerSettings, WriteCheckpoint


class CheckpointWriter:
    """One checkpoint at a time; `send` is called from its thread with the answer."""

    def __init__(self, send: Callable[[msgspec.Struct], None]) -> None:
        self._send = send
        self._thread: threading.Thread | None = None
        self._snapshot: Snapshot | None = None

    @property
    def busy(self) -> bool:
        """Is one being written?"""
        return self._thread is not None and self._thread.is_alive()

    def start(self, message: WriteCheckpoint, snapshot: Snapshot, source: ModelDir, settings: OptimizerSettings) -> None:
        """Begin, when the one before is done."""
        self.finish()
        model_dir = Path(message.model_dir) if message.model_dir else None
        job = checkpoint.Job(message.step, Path(message.path), model_dir, message.full, snapshot, source, settings)
        self._snapshot = snapshot
        # A daemon: where the process has to leave at once, recovery makes of the rest what it makes of a crash.
        self._thread = threading.Thread(target=self._run, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Wait until the weights may be written."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._snapshot = None

    def finish(self) -> None:
        """Wait until the running one is answered."""
        if self._thread is not None:
            self._thread.join()
        self._thread = self._snapshot = None

    def _run(self, job: checkpoint.Job) -> None:
        started = time.perf_counter()
        written, error, damaged, doubtful = checkpoint.Written(), "", False, False
        try:
            job.snapshot.copy()
            failpoint("trainer.checkpoint.copied")
            written = checkpoint.write(job)
        except ApolloError as failure:
            error, damaged = failure.line(), isinstance(failure, WeightsDamaged)
            doubtful = isinstance(failure, SyncError) and failure.committed
        except Exception as failure:  # noqa: BLE001 - whatever it is: whoever asked is waiting, and training can go on
            error = " ".join(f"{type(failure).__name__}: {failure}".split())
        job.snapshot.drop()
        answer = CheckpointWritten(
            job.step, str(job.path), written.fingerprint, written.bytes, time.perf_counter() - started, error, damaged, doubtful,
            held_s=job.snapshot.held_s, written_bytes=written.written_bytes, delta_bytes=written.delta_bytes,
            changed_blocks=written.changed_blocks, blocks=written.blocks, files=written.files,
        )  # fmt: skip
        try:
            self._send(answer)
        except LinkClosed:
            return  # the loop finds out for itself
