"""Updates of the weights by outside trainers. Events, inputs, effects and state.

An update is received as files, and then is an example whose step writes their tensors in place of a gradient. So a
crash, a replay, a rollback and a search for culprits treat it as any other step.
"""

from typing import ClassVar, Literal

import msgspec

from apollod.core.facts.intake.inputs import Line
from apollod.core.kernel.effect import Effect
from apollod.core.kernel.event import Event
from apollod.core.kernel.input import Input

OBJECTIVE = "update"
"""the objective of a step that writes given tensors"""
SOURCE = "update:"
"""the source of its example, before the dialect's name"""

Dialect = Literal["vllm", "sglang"]
"""the HTTP interface by which an outside trainer updates the weights"""

# --- events ----------------------------------------------------------------------------------------------------------


class UpdateEvent(Event, frozen=True):
    """Base of events about one update. `update`: its number, from 1."""

    update: int

    def key(self) -> str:
        return str(self.update)


class UpdateOpened(UpdateEvent, frozen=True):
    """An outside trainer has the lease: no own step begins until the update has ended. `weights`, `fingerprint`:
    version of the weights before, and theirs; `by`: who asked."""

    kind: ClassVar[str] = "update.opened"
    dialect: Dialect
    by: str
    weights: int
    fingerprint: str


class UpdateReceived(UpdateEvent, Input, frozen=True):
    """Tensors were received and stored in `file` (BLAKE2b-256 of its bytes), checked for names, shapes, dtypes and
    values, and not written yet. `names`: BLAKE2b-128 over their names in order; `way`: how they came: gloo,
    tensor or directory."""

    kind: ClassVar[str] = "update.received"
    way: str
    file: str
    names: str
    tensors: int
    bytes: int
    seconds: float


class UpdateAccepted(UpdateEvent, frozen=True):
    """All of it was received and is to be written: as `example`, once the trainer has checked it. `label`: the outside
    trainer's name of the version."""

    kind: ClassVar[str] = "update.accepted"
    example: str
    label: str


class UpdateCommitted(UpdateEvent, frozen=True):
    """Result: `step` wrote the tensors. `parent`: the step whose weights it wrote over; `label`: see `UpdateAccepted`;
    `names`: tells the written tensors from others; `durable`: see `[control] durable`."""

    kind: ClassVar[str] = "update.committed"
    step: int
    parent: int
    label: str
    example: str
    fingerprint: str
    tensors: int
    bytes: int
    names: str
    seconds: float
    durable: str
    files: tuple[str, ...]


class UpdateUndone(UpdateEvent, frozen=True):
    """Result: nothing was written; the weights are those of before, with this fingerprint."""

    kind: ClassVar[str] = "update.undone"
    reason: str
    fingerprint: str


class UpdateLost(UpdateEvent, frozen=True):
    """A committed update cannot be repeated after a crash, since its tensors were not kept: the weights go back to
    version `to`."""

    kind: ClassVar[str] = "update.lost"
    step: int
    to: int
    reason: str


class UpdateFilesRemoved(UpdateEvent, frozen=True):
    """The files of a committed update were removed, as `durable` says: a replay over `step` is no longer possible."""

    kind: ClassVar[str] = "update.files-removed"
    step: int
    files: tuple[str, ...]


# --- inputs ----------------------------------------------------------------------------------------------------------


class UpdateOpening(Input, frozen=True):
    """A request to begin an update."""

    dialect: Dialect
    by: str


class UpdateCommitting(Input, frozen=True):
    """A request to write what was received. `line`: the record of the update as an example."""

    update: int
    line: Line
    label: str = ""


class UpdateEnding(Input, frozen=True):
    """A request to end an update without a change, or its failure."""

    update: int
    reason: str


class UpdateFilesGone(Input, frozen=True):
    """Answers `RemoveUpdateFiles`."""

    step: int


# --- effects ---------------------------------------------------------------------------------------------------------


class RemoveUpdateFiles(Effect, frozen=True):
    """Remove these files of an update, which nothing needs any more; answered by `UpdateFilesGone`."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("step",)
    step: int
    files: tuple[str, ...]


class DropUpdateFiles(Effect, frozen=True):
    """Remove what was received for an update that was not committed; nothing waits for it."""

    distinguished_by: ClassVar[tuple[str, ...]] = ("files",)
    files: tuple[str, ...]


# --- state -----------------------------------------------------------------------------------------------------------


class Session(msgspec.Struct):
    """The update under way."""

    opened: UpdateOpened
    since_ns: int
    called_ns: int
    """time of the last call about it"""
    received: list[UpdateReceived] = []
    example: str = ""
    """the example that writes it, once it is to be written"""
    label: str = ""
    step: int = 0
    """the step that wrote it"""
    parent: int = 0
    seconds: float = 0.0
    failed: str = ""
    """why it could not be written"""

    @property
    def number(self) -> int:
        """Number of the update."""
        return self.opened.update

    @property
    def receiving(self) -> bool:
        """True while more tensors may come."""
        return not (self.example or self.failed)

    @property
    def tensors(self) -> int:
        """Number of received tensors."""
        return sum(one.tensors for one in self.received)

    @property
    def bytes(self) -> int:
        """Bytes of the received tensors."""
        return sum(one.bytes for one in self.received)

    @property
    def files(self) -> tuple[str, ...]:
        """Received files, in order."""
        return tuple(one.file for one in self.received)

    @property
    def names(self) -> str:
        """Tells the received tensors from those of another update; equal for the same calls in any order."""
        return " ".join(sorted(one.names for one in self.received))


class Kept(msgspec.Struct, frozen=True):
    """A committed update whose files are still there, and are to be removed."""

    update: int
    step: int
    parent: int
    durable: str
    files: tuple[str, ...]


class UpdatesState(msgspec.Struct):
    """Updates by outside trainers."""

    last: int = 0
    """number of the last update"""
    session: Session | None = None
    committed: int = 0
    undone: int = 0
    label: str = ""
    """the outside trainer's name of the last committed version"""
    labelled: int = 0
    """that version"""
    names: str = ""
    """`names` of the last committed update"""
    removing: list[Kept] = []
    """committed updates whose files are removed at once, or once a checkpoint holds them"""
    unkept: dict[int, Kept] = {}
    """by step, updates that cannot be repeated, since their files were removed"""


class UpdatesCarried(Event, frozen=True):
    """State of the updates at the end of the journal's archive; see the fields of `UpdatesState`."""

    kind: ClassVar[str] = "updates.carried"
    last: int
    committed: int
    undone: int
    label: str
    names: str
    labelled: int = 0
