"""The parts of `status` about the queue, the steps, and their effect."""

import msgspec


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of examples, over the life of the journal."""

    pending: int
    """accepted and not learned yet, including the running step's"""
    held: int
    """waiting for a decision, or their step could not be run"""
    trained: int
    skipped: int = 0
    """their step wrote nothing"""
    undone: int = 0
    """their step was taken back"""
    withdrawn: int = 0
    """taken out of the queue"""
    declined: int = 0
    """decided against"""
    edited: int = 0
    """replaced by an edited version"""
    expired: int = 0
    """not decided in time"""
    forgetting: int = 0
    """learned, and being taken out of the weights"""
    unforgotten: int = 0
    """were to be forgotten, and could not be"""
    rejected: int
    """quarantined lines, and examples that cannot be learned"""
    duplicates: int
    """lines that repeat known ones"""
    accepted: int = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a source that cannot be read now."""

    reason: str
    hint: str
    """the fix"""
    mode: str
    """kind of place where it was found: `inbox`, `tail` (files of a watched directory) or `poll` (databases)"""
    since: float
    """Unix time at which it was found"""


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """The optimizer; empty before the first start."""

    name: str
    rank: int
    lr: float = 0.0
    lr_direct: float = 0.0
    """learning rate of direct corrections"""
    state_bytes: int
    products: str = ""
    """dtype of bf16 matrix products, `bf16` or `float32`; empty without a trainer"""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The running step."""

    step: int
    example: str
    """id of its first example"""
    examples: int
    tokens: int
    """tokens of all its examples; 0: not known"""
    elapsed_s: float
    """time since its intent was recorded"""
    expected_s: float | None
    """expected total time, from earlier steps; null: not known"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Learning hours of examples that are not urgent. Times are seconds since 1970."""

    nightly: str = ""
    """hours of the day; empty: at any time"""
    zone: str = ""
    """empty: that of this machine"""
    open: bool = True
    """such examples are learned now"""
    late: bool = False
    """a missed night is being caught up"""
    opens_at: float | None = None
    closes_at: float | None = None
    """start and end of the present or next hours; `closes_at` while catching up: its end"""
    steps: int = 0
    """steps of this night, or of the last one"""
    dream: str = "any"
    """when dreams begin: at any time, or at night"""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """Existing logs that are read and learned once: the source under way, or the last one."""

    path: str
    state: str
    """`reading`; `learning`: all is read, and its examples wait for their steps; `completed`; `stopped`"""
    reason: str = ""
    """why it was stopped"""
    strip: str
    files: int | None = None
    """number of files; null: not counted yet"""
    files_read: int = 0
    bytes: int | None = None
    """total size on disk"""
    bytes_read: int = 0
    unread: int = 0
    """files that could not be read"""
    accepted: int = 0
    """examples, as in all following fields except `rejected`; over all requests for the same place and rules"""
    duplicates: int = 0
    rejected: int = 0
    """lines that are not records"""
    dropped: int = 0
    """answers without an example"""
    learned: int = 0
    held: int = 0
    waiting: int = 0
    """accepted and neither learned nor given up, including those that wait for the judge"""
    left: int | None = None
    """`waiting`, and the expected examples of the rest of the source; null: not known"""
    pattern: str = ""
    """the pattern that it teaches"""
    pattern_state: str = ""
    """`active`, `settled` or `retired`"""
    pattern_tests: dict[str, list[int]] | None = None
    """last round of tests of the pattern, by mode: [passed, count]; null: not tested since the bootstrap"""
    left_s: float | None = None
    """expected seconds of steps for `left`; null: not known"""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Gain by learning, on the lines last scored again, see [trainer] rescore."""

    scored: int = 0
    waiting: int = 0
    """lines to be scored again when nothing waits to be learned"""
    before: float | None = None
    """mean loss before learning, nats a token; null: none was scored"""
    after: float | None = None
    """mean loss when they were scored again"""
    weak: int = 0
    """number of these that hardly improved: loss above 0.5 and less than a tenth below its value before"""
