"""The trainer's message loop: one message in, one answer out, no decisions.

Requests that cannot be fulfilled get `Refused`, and the trainer stays up. An exception inside a step is answered with
`StepFailure` and ends the process, because the weights may be half updated; unless memory ran out before the first
update.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import TypeVar

import msgspec
import torch

from apollod.adapters.ipc.channel import Link
from apollod.core.facts.updates import OBJECTIVE
from apollod.errors import ApolloError, LinkClosed, OutOfMemory, RecordRefused, ShareRefused, WeightsDamaged
from apollod.explain import line_of
from apollod.failpoints import failpoint
from apollod.products import products_in
from apollod.trainer import scoring
from apollod.trainer.bind.attach import attach
from apollod.trainer.bind.mapped_memory import open_storages
from apollod.trainer.checkpoints import restore
from apollod.trainer.checkpoints.checkpoint_writer import CheckpointWriter
from apollod.trainer.checkpoints.weights_snapshot import Snapshot
from apollod.trainer.foreign_update import encoded_update, write_update
from apollod.trainer.kernels import kernels_cpu
from apollod.trainer.learner import UNKNOWN, Learner, Untrained, bound, checked, encode
from apollod.trainer.memory import lacks_memory, spoils_the_thread
from apollod.trainer.objectives.context import CONTEXT
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.trainer.objectives.objective import Objective
from apollod.trainer.objectives.table import objective_named
from apollod.trainer.objectives.tokens import Tokens
from apollod.trainer.ranking import ranked
from apollod.trainer.scoring import rescored
from apollod.trainer.step import be_deterministic, run_step
from apollod.wire import messages as m
from apollod.wire.updates import is_update

MessageT = TypeVar("MessageT")
AnswerT = TypeVar("AnswerT")

EXIT_TORN = 70  # EX_SOFTWARE: a step failed, the weights may be half updated


class _Stop(Exception):
    """SIGTERM arrived between two messages."""


class Loop:
    """Serves one supervisor over `link` until it sends `Quit`, closes the socket, or SIGTERM."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._checkpoints = CheckpointWriter(link.send)
        self._fds: list[int] = []
        self._learner: Learner | None = None
        self._untrained = UNKNOWN
        self._spoiled = False
        """True once this thread can no longer be used for computing"""
        self._receiving = False
        self._stopping = False

    def run(self) -> int:
        """Exit code: 0 after `Quit` or if the supervisor is gone, EXIT_TORN after a failed step.

        Only `Quit` waits for a checkpoint that is being written, not only settled; otherwise the process ends here, and
        recovery treats it like a crash. (Python's normal exit would unload the libraries under the thread.)
        """
        code = self._serve()
        if not self._checkpoints.settled():
            os._exit(code)
        return code

    def _serve(self) -> int:
        signal.signal(signal.SIGTERM, self._on_sigterm)
        be_deterministic()
        if kernels_cpu.AVAILABLE:
            kernels_cpu.warm_up()
        while True:
            try:
                message = self._next()
                if isinstance(message, m.Quit):
                    self._checkpoints.finish()
                    return 0
                answer = _elsewhere(self._answer, message) if self._spoiled else self._answer(message)
                if answer is not None:
                    self._link.send(answer)
                if isinstance(answer, m.StepFailure) and answer.torn:
                    return EXIT_TORN
            except (LinkClosed, _Stop):
                return 0

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        """Leave at the next boundary between messages; at once while waiting for one."""
        self._stopping = True
        if self._receiving:
            raise _Stop

    def _next(self) -> m.FromSupervisor:
        self._receiving = True  # before the flag is read: a signal in between raises
        if self._stopping:
            raise _Stop
        message = self._link.receive()
        self._receiving = False
        return message

    def _answer(self, message: m.FromSupervisor) -> msgspec.Struct | None:
        """Carry out the message; returns the answer to send, or None. Unexpected exceptions end the process."""
        match message:
            case m.Share():
                self._fds.append(self._link.take_fd())
                return None
            case m.WriteCheckpoint():
                return self._write_checkpoint(message)
            case m.Step():
                return self._step(message)
            case m.ProbeTrainer():
                return self._probe(message)
            case m.Rescore():
                return self._rescore(message)
            case m.Rank():
                return self._rank(message)
        try:
            match message:
                case m.Attach():
                    self._checkpoints.finish()  # so that the files to read are complete
                    return self._attach(message)
                case m.Restore():
                    return self._restore(message)
                case m.Encode():
                    return m.EncodeDone(list(self._encoded(message)))
        except ApolloError as error:
            return m.Refused(_tag(message), " ".join(str(error).split()), error.hint)
        return m.Refused(
            _tag(message), "a trainer does not know this message", "supervisor and trainer must be of one version"
        )

    def _encoded(self, message: m.Encode) -> Iterator[m.Encoded]:
        learner, untrained = self._attached(), self._untrained_of(message)
        for example, record in message.examples:
            if not is_update(record):
                yield encode(learner, example, record, untrained=untrained)
                continue
            try:
                yield encoded_update(learner, example, record)
            except RecordRefused as error:
                yield m.Encoded(example, refused=error.line())
            except OSError as error:
                yield m.Encoded(example, refused=line_of(error))

    def _untrained_of(self, message: m.Encode) -> Untrained:
        """The weights before the first step, which stay in memory once a message needed them."""
        if (self._untrained.directories, self._untrained.fingerprint) != (message.directories, message.untrained):
            self._untrained = Untrained(message.directories, message.untrained)
        return self._untrained

    def _attached(self) -> Learner:
        if self._learner is None:
            raise ShareRefused("the trainer has no weights yet", "send attach first")
        return self._learner

    def _attach(self, message: m.Attach) -> m.Bound:
        fds, self._fds = self._fds, []
        if self._learner is not None and self._learner.undo is not None:
            self._learner.undo.clear()
        self._learner = None  # unmap the old memory before the new one is mapped
        manifest = message.manifest
        attached = attach(manifest, open_storages(manifest, fds), message.fresh, message.gradient_checkpointing)
        attached = attached.select(message.optimizer.layers, message.optimizer.freeze)
        self._learner = Learner(
            attached, message.optimizer, load_tokenizer(manifest.model_dir), message.undo_bytes, message.kernels,
            message.undo_refused, message.products,
        )  # fmt: skip
        return bound(self._learner, manifest)

    def _restore(self, message: m.Restore) -> m.Restored:
        learner = self._attached()
        self._checkpoints.hold()
        if message.target >= 0 and (taken := learner.take_back(message.target, message.target_fingerprint)):
            if taken == message.target_fingerprint:
                return m.Restored(taken, learner.optimizer.state_bytes(), True, learner.undoable())
            message = msgspec.structs.replace(message, weights=True)
        self._checkpoints.finish()
        restoring = restore.prepare(message, learner.attached.weights, learner.settings)
        if learner.undo is not None:
            learner.undo.clear()
        if not message.path:
            learner.forget()
        found = restoring.into(learner.attached.weights, learner.optimizer)
        if damaged := learner.attached.weights.nonfinite():
            raise WeightsDamaged(damaged)
        if learner.undo is not None:
            learner.undo.restart(found)
        return m.Restored(found, learner.optimizer.state_bytes(), undoable=learner.undoable())

    def _step(self, message: m.Step) -> m.StepDone | m.StepFailure:
        try:
            learner = self._attached()
            answer = (
                write_update(learner, message, self._checkpoints.hold)
                if message.objective == OBJECTIVE
                else self._learn(learner, message)
            )
        except ApolloError as error:
            return m.StepFailure(message.step, error.line())
        except Exception as error:  # noqa: BLE001 - whatever it is, the weights may be torn: say so and leave
            return m.StepFailure(message.step, line_of(error))
        failpoint("trainer.step.unreported")
        return answer

    def _learn(self, learner: Learner, message: m.Step) -> m.StepDone | m.StepFailure:
        objective = objective_named(message.objective)
        batch = [checked(learner, example, objective) for example in message.examples]
        anchors = [checked(learner, anchor, CONTEXT) for anchor in message.anchors]
        return self._run(learner, objective, batch, anchors, message)

    def _run(
        self, learner: Learner, objective: Objective, batch: list[Tokens], anchors: list[Tokens], message: m.Step
    ) -> m.StepDone | m.StepFailure:
        """Run the step, or report that memory ran out. If that happens before the first update (mostly in the forward
        pass), weights and state are unchanged, and the trainer can go on."""
        optimizer = learner.optimizer
        updates = optimizer.updates
        try:
            with products_in(message.products or learner.products):
                done = run_step(
                    learner.attached, optimizer, batch, message.step, message.lr, message, objective, anchors,
                    learner.settings.loss_min, message.replay, self._checkpoints.hold,
                )  # fmt: skip
            return msgspec.structs.replace(done, undoable=learner.undoable())
        except Exception as error:
            if not lacks_memory(error):
                raise
            self._spoiled |= spoils_the_thread(error)
            tokens = sum(len(tokens.ids) for tokens in batch + anchors)
            lack = OutOfMemory(tokens, len(batch), len(anchors), line_of(error))
        torn = optimizer.updates != updates
        if not torn:
            optimizer.abandon()
            self._give_memory_back()
        return m.StepFailure(message.step, lack.line(), out_of_memory=True, torn=torn)

    def _probe(self, message: m.ProbeTrainer) -> m.Probed:
        return self._looked(
            lambda own: scoring.probe(
                own.attached, own.tokenizer, own.settings.max_tokens, message, self._wanted_elsewhere
            ),
            lambda error: m.Probed(message.step, number=message.number, error=error),
        )

    def _rescore(self, message: m.Rescore) -> m.ExamplesScored:
        return self._looked(
            lambda own: rescored(own.attached.model, partial(checked, own), message, self._wanted_elsewhere),
            lambda error: m.ExamplesScored(message.number, (), error=error),
        )

    def _rank(self, message: m.Rank) -> m.ExamplesRanked:
        return self._looked(
            lambda own: ranked(
                own.attached, own.optimizer, partial(checked, own), message, own.settings.loss_min, self._at_work
            ),
            lambda error: m.ExamplesRanked(message.incident, message.number, error=error),
        )

    def _looked(self, look: Callable[[Learner], AnswerT], failed: Callable[[str], AnswerT]) -> AnswerT:
        """Read the weights without writing them. Any error becomes the answer, and the trainer stays as it is."""
        try:
            learner = self._attached()
            with products_in(learner.products):
                return look(learner)
        except (LinkClosed, _Stop):
            raise
        except Exception as error:  # noqa: BLE001 - out of memory, say: an alignment must not cost the trainer
            self._spoiled |= spoils_the_thread(error)
            answer = failed(line_of(error))
        self._give_memory_back()
        return answer

    def _at_work(self) -> None:
        """Report progress on a long request; or leave, if asked to. Nothing was written for it."""
        if self._stopping:
            raise _Stop
        self._link.send(m.AtWork())

    def _give_memory_back(self) -> None:
        """Free memory after an error. Call it after the except clause, which holds the traceback and its graph."""
        gc.collect()
        torch.cuda.empty_cache()

    def _wanted_elsewhere(self) -> bool:
        """True if other work waits for this to end."""
        return self._stopping or self._link.waiting()

    def _write_checkpoint(self, message: m.WriteCheckpoint) -> m.CheckpointWritten | None:
        """Start writing; the writer's thread sends the answer."""
        if self._learner is None:
            return m.CheckpointWritten(message.step, message.path, "", 0, 0.0, "the trainer has no weights yet")
        attached = self._learner.attached
        snapshot = Snapshot(attached.weights, self._learner.optimizer.state_tensors())
        self._checkpoints.start(message, snapshot, attached.weights.source, self._learner.settings)
        return None


def _elsewhere(work: Callable[[MessageT], AnswerT], message: MessageT) -> AnswerT:
    """Run `work(message)` in a new thread. It gives the same bits: on CPU a backward pass runs in the calling thread,
    and each thread has as many helpers."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, message).result()


def _tag(message: m.FromSupervisor) -> str:
    return str(message.__struct_config__.tag)
