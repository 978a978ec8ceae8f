"""The thread that writes a checkpoint while the trainer goes on with the next steps."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from apollod.core.kernel.composing import composed
from apollod.errors import LinkClosed, SyncError, WeightsDamaged
from apollod.explain import line_of
from apollod.failpoints import failpoint
from apollod.trainer import memory
from apollod.trainer.bind.live_weights import ModelDir
from apollod.trainer.checkpoints import write_checkpoint
from apollod.trainer.checkpoints.weights_snapshot import Snapshot
from apollod.wire.messages import CheckpointWritten, OptimizerSettings, WriteCheckpoint

_NO_ROOM = (
    "apollod trainer: not enough host memory for a copy of weights and optimizer; the checkpoint is written in pieces, "
    "and steps wait until it is\n"
)


class CheckpointWriter:
    """Writes one checkpoint at a time; its thread calls `send` with the answer before it removes the redo record."""

    def __init__(self, send: Callable[[msgspec.Struct], None]) -> None:
        self._send = send
        self._thread: threading.Thread | None = None
        self._snapshot: Snapshot | None = None
        self._answered = False

    def settled(self) -> bool:
        """True if nothing is being written. Waits if the answer is out and only the redo record has to go."""
        if self._answered:
            self.finish()
        return self._thread is None or not self._thread.is_alive()

    def start(
        self, message: WriteCheckpoint, snapshot: Snapshot, source: ModelDir, settings: OptimizerSettings
    ) -> None:
        """Begin, after the checkpoint before is done."""
        self.finish()
        model_dir = Path(message.model_dir) if message.model_dir else None
        job = write_checkpoint.Job(
            message.step, Path(message.path), model_dir, message.full, snapshot, source, settings
        )
        self._snapshot, self._answered = snapshot, False
        # A daemon thread: if the process has to leave at once, recovery treats the rest like a crash.
        self._thread = threading.Thread(target=self._run, args=(job,), name="checkpoint", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Wait until the weights may be written."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._snapshot = None

    def finish(self) -> None:
        """Wait until the running checkpoint is answered and settled."""
        if self._thread is not None:
            self._thread.join()
        self._thread = self._snapshot = None

    def _run(self, job: write_checkpoint.Job) -> None:
        started = time.perf_counter()

        def answer(written: write_checkpoint.Written, **failed: Any) -> None:
            self._answered = True
            job.snapshot.drop()
            memory.give_back()  # a copy of all weights
            seconds = time.perf_counter() - started
            with suppress(LinkClosed):  # the loop notices by itself
                self._send(composed(
                    CheckpointWritten, written, step=job.step, path=str(job.path), seconds=seconds,
                    held_s=job.snapshot.held_s, **failed,
                ))  # fmt: skip

        try:
            if not job.snapshot.copy():
                sys.stderr.write(_NO_ROOM)
            failpoint("trainer.checkpoint.copied")
            write_checkpoint.write(job, answer)
        except Exception as failure:  # noqa: BLE001 - the supervisor waits for an answer, and training can go on
            error = line_of(failure)
            if self._answered:  # the next sync and the next start of an engine recover
                sys.stderr.write(
                    f"apollod trainer: the checkpoint {job.path} is committed, its redo record stays: {error}\n"
                )
                return
            doubtful = isinstance(failure, SyncError) and failure.committed
            answer(
                write_checkpoint.Written(), error=error, damaged=isinstance(failure, WeightsDamaged), doubtful=doubtful
            )
