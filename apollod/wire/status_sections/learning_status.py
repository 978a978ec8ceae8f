"""The parts of `status` about the queue, the steps, and how much they helped."""

import msgspec


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Examples, counted over the life of the journal."""

    pending: int
    """accepted and not yet learned, the running step's included"""
    held: int
    """somebody has to decide about them, or their step could not be run"""
    trained: int
    skipped: int = 0
    """their step wrote nothing"""
    undone: int = 0
    """their step was taken back"""
    withdrawn: int = 0
    """somebody took them out of the queue"""
    declined: int = 0
    """somebody decided against them"""
    edited: int = 0
    """another one is learned in their place"""
    expired: int = 0
    """nobody decided in time"""
    forgetting: int = 0
    """were learned, and are taken out of the weights"""
    unforgotten: int = 0
    """were to be forgotten and could not be"""
    rejected: int
    """lines that were quarantined, and examples that cannot be learned from"""
    duplicates: int
    """lines that were known already"""
    accepted: int = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a source that cannot be read now."""

    reason: str
    hint: str
    """what can be done about it"""
    mode: str
    """where it was found: `inbox`, `tail` (files of a watched directory) or `poll` (databases)"""
    since: float
    """Unix time at which it was found"""


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """The optimizer; empty before the first start."""

    name: str
    rank: int
    lr: float = 0.0
    lr_direct: float = 0.0
    """for direct corrections"""
    state_bytes: int
    products: str = ""
    """what bf16 matrices are multiplied in, `bf16` or `float32`; empty without a trainer"""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The step that is being made."""

    step: int
    example: str
    """id of the first one that it learns"""
    examples: int
    tokens: int
    """of all of them; 0: not known"""
    elapsed_s: float
    """since its intent was recorded"""
    expected_s: float | None
    """what the steps before it let expect for all of it; null: nothing yet"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Learning hours of examples that are not urgent. Times are seconds since 1970."""

    nightly: str = ""
    """hours of the day; empty: at any time"""
    zone: str = ""
    """empty: this machine's"""
    open: bool = True
    """is it learned now?"""
    late: bool = False
    """since a night was missed, which is being caught up"""
    opens_at: float | None = None
    closes_at: float | None = None
    """of the hours that it is in, or of the next ones; `closes_at` of a night that is being caught up: its end"""
    steps: int = 0
    """of this night, or of the last one"""
    dream: str = "any"
    """when dreams begin: at any time, or at night"""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Existing logs that are read and learned once: the source that is under way, or the last one."""

    path: str
    state: str
    """`reading`; `learning`: all is read, and its examples wait for their steps; `completed`; `stopped`"""
    reason: str = ""
    """why it was stopped"""
    strip: str
    files: int | None = None
    """that there are; null: nobody has looked yet"""
    files_read: int = 0
    bytes: int | None = None
    """of all of them, on disk"""
    bytes_read: int = 0
    unread: int = 0
    """files that could not be read"""
    accepted: int = 0
    """examples, like all that follow but `rejected`; of all requests for the same place by the same rules"""
    duplicates: int = 0
    rejected: int = 0
    """lines that are no records"""
    dropped: int = 0
    """answers that gave no example"""
    learned: int = 0
    held: int = 0
    waiting: int = 0
    """accepted and neither learned nor given up, what the judge has to decide about among them"""
    left: int | None = None
    """`waiting`, and what the rest of the source will probably give; null: nobody knows how much that is"""
    pattern: str = ""
    """that it teaches"""
    pattern_state: str = ""
    """`active`, `settled` or `retired`"""
    pattern_tests: dict[str, list[int]] | None = None
    """of its last round of tests, by mode: [passed, of how many]; null: what the bootstrap taught is not tested yet"""
    left_s: float | None = None
    """of steps, for what waits and for what the rest will probably give; null: no step tells yet how long one takes"""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Gain of what was learned, on the lines that were scored again last, see [trainer] rescore."""

    scored: int = 0
    waiting: int = 0
    """that are scored again when nothing waits to be learned"""
    before: float | None = None
    """mean loss before they were learned, nats a token; null: none was scored"""
    after: float | None = None
    """and when they were scored"""
    weak: int = 0
    """of these, how many hardly moved: a loss less than a tenth below what it was, and above 0.5"""
