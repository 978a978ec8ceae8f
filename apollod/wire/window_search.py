"""The protocol of the process that replays a window: JSON, one object a line.

The first line on its standard input is a `Window`, each one after it a `Without`, which is answered by one `Outcome` on
its standard output before the next is read.
"""

import msgspec

ROOM = "search"
"""Kind of the directory, in the state directory, for files that replays share: `search.tmp-PID`."""


class Window(msgspec.Struct, frozen=True):
    """Steps `first` to `last` of a journal, and the items to measure after them. `references`: digest of the file with
    the baseline's answers, in the blobs of `state_dir`, where replays also keep shared files; `items`: by metric."""

    journal: str
    state_dir: str
    first: int
    last: int
    references: str
    items: dict[str, tuple[str, ...]]


class Without(msgspec.Struct, frozen=True):
    """Replay the window without these examples, each step at this share of its learning rate (`lr_scale`)."""

    number: int
    left_out: tuple[str, ...]
    lr_scale: float = 1.0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a replay: see `core.quality.inputs.WindowReplayed`; `note`: for people. `error`: why there is no
    result; `for_good`: another try would not help, and the process exits."""

    number: int
    drops: dict[str, float] = {}
    steps: int = 0
    seconds: float = 0.0
    fingerprint: str = ""
    note: str = ""
    error: str = ""
    for_good: bool = False
