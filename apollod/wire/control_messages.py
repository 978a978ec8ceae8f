"""Messages of the control socket: one request a connection, one answer.

A file of its own, since `apollod ctl status` needs these and nothing else of the protocol. Tags are explicit strings:
they are the protocol, class names are not.
"""

from typing import Any, Literal

import msgspec

from apollod.core.facts.intake.events import StripLevel
from apollod.core.facts.review import Decision
from apollod.core.facts.updates import Dialect as Dialect
from apollod.core.settings import PatternSettings
from apollod.wire.tensor_handles import Handle


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """`apollod ctl status`."""


SUBMIT_LINES = 1000
"""most lines of one request: bad lines are kept durably before the answer"""


class SubmitRequest(msgspec.Struct, frozen=True, tag="submit"):
    """Lines of an inbox file given directly, at most SUBMIT_LINES; `source` names them in the journal. `first`: the
    number of the first line within its source, from 1."""

    lines: list[bytes]
    source: str
    first: int = 1


class CheckpointRequest(msgspec.Struct, frozen=True, tag="checkpoint"):
    """Write a checkpoint now; answered when it is committed."""


class PauseRequest(msgspec.Struct, frozen=True, tag="pause"):
    """Finish the running step, then start no other."""


class ResumeRequest(msgspec.Struct, frozen=True, tag="resume"):
    """Resume training; also restarts a child that was given up."""


class RollbackRequest(msgspec.Struct, frozen=True, tag="rollback"):
    """Bring the served weights back to a step; answered when done."""

    to: int


class EnvironmentRequest(msgspec.Struct, frozen=True, tag="environment"):
    """Pause or resume an environment."""

    environment: str
    action: Literal["pause", "resume"]
    by: str
    reason: str = ""


class RelearnRequest(msgspec.Struct, frozen=True, tag="relearn"):
    """Put examples back into the queue whose steps were taken back, or that were withdrawn."""

    examples: list[str]


class WithdrawRequest(msgspec.Struct, frozen=True, tag="withdraw"):
    """Take examples out of the queue: these, or all waiting ones of a source (its identity or its path)."""

    examples: list[str] = []
    source: str = ""


class ForgetRequest(msgspec.Struct, frozen=True, tag="forget"):
    """Remove the effect of these examples from the weights; answered when the request is recorded."""

    examples: list[str]
    reason: str = ""


class FeedbackRequest(msgspec.Struct, frozen=True, tag="feedback"):
    """Rate an answer of the engine; answered when it is recorded. `choice`: index among several, None if there is only
    one. `by`: interface of the rating."""

    response: str
    rating: Literal["good", "bad"]
    correction: str | None = None
    comment: str = ""
    choice: int | None = None
    by: str = "ctl"


class FeedbackQuestion(msgspec.Struct, frozen=True, tag="feedback-question"):
    """Look up the ratings of an answer, and whether it is kept."""

    response: str
    choice: int | None = None


class DecideRequest(msgspec.Struct, frozen=True, tag="decide"):
    """Approve, decline or hold examples, all of them or none if `together`; `by`: the decider, as free text."""

    decisions: tuple[Decision, ...]
    by: str = ""
    together: bool = False


class EditRequest(msgspec.Struct, frozen=True, tag="edit"):
    """Learn `record` (a line as for the inbox) instead of an example. `only_in`: as in `Decision`."""

    example: str
    record: bytes
    by: str = ""
    only_in: str = ""


class QueueRequest(msgspec.Struct, frozen=True, tag="queue"):
    """List the examples learned next, at most `limit`, with the reasons."""

    limit: int = 20


class BootstrapRequest(msgspec.Struct, frozen=True, tag="bootstrap"):
    """Read `path` (absolute) once and learn it by these rules, as in `[[watch]]`. Without `models`: answers of the
    served model. `by`: the requester, as free text."""

    path: str
    by: str = ""
    models: list[str] = []
    strip: StripLevel = "system"
    strip_patterns: list[str] = []
    sidechains: bool = False
    format: str = "auto"
    tier: Literal["direct", "bulk"] = "bulk"
    review: str = "auto"
    pattern: str = ""


class BootstrapStopRequest(msgspec.Struct, frozen=True, tag="bootstrap-stop"):
    """Stop the bootstrap under way."""

    by: str = ""


class PatternsRequest(msgspec.Struct, frozen=True, tag="patterns"):
    """Describe patterns, their progress, and why no dream is made now."""


class PatternAddRequest(msgspec.Struct, frozen=True, tag="pattern-add"):
    """Learn a behaviour; its paths are absolute. It replaces one of the same name. `by`: the requester, as free
    text."""

    pattern: PatternSettings
    by: str = ""


class PatternRetireRequest(msgspec.Struct, frozen=True, tag="pattern-retire"):
    """Retire a pattern."""

    name: str
    by: str = ""


class DreamStartRequest(msgspec.Struct, frozen=True, tag="dream-start"):
    """Dream now, regardless of the schedule: of one pattern or (empty) of all, for `count` practices or (0) until all
    is settled."""

    pattern: str = ""
    count: int = 0
    by: str = ""


class DreamStopRequest(msgspec.Struct, frozen=True, tag="dream-stop"):
    """Begin no further dream until a user starts dreaming again."""

    by: str = ""


class TeachRequest(msgspec.Struct, frozen=True, tag="teach"):
    """Teach a statement, the answer to a question, or a behaviour; answered when it is recorded. `replaces`: id of the
    lesson that it corrects, whose question it takes over if it has none. `by`: the requester, as free text. `pattern`:
    the behaviour, which gets a name if it has none."""

    statement: str = ""
    question: str = ""
    answer: str = ""
    replaces: str = ""
    by: str = ""
    pattern: PatternSettings | None = None


class LessonQuestion(msgspec.Struct, frozen=True, tag="lesson-question"):
    """Show one lesson. `given_at`: among behaviours of this name, the one given at that time; 0: the one in force."""

    lesson: str
    given_at: float = 0.0


class LessonsRequest(msgspec.Struct, frozen=True, tag="lessons"):
    """List lessons, the newest first: at most `limit` (0: all), only in this state (empty: in any)."""

    state: str = ""
    limit: int = 0
    document: str = ""
    """only of this document; empty: no restriction"""


class LessonPractiseRequest(msgspec.Struct, frozen=True, tag="lesson-practise"):
    """Test a lesson, and practise it if it fails, whatever its state."""

    lesson: str
    by: str = ""


class LessonForgetRequest(msgspec.Struct, frozen=True, tag="lesson-forget"):
    """Give a lesson up, and remove the effect of its steps from the weights; answered when the request is recorded."""

    lesson: str
    by: str = ""


class TeachDocumentRequest(msgspec.Struct, frozen=True, tag="teach-document"):
    """Teach a document, each fact as a lesson; answered when all are recorded. `name`: its file's name, which
    identifies later editions; `questions`: with their answers, taught instead of facts found in it; `forget_removed`:
    forget lessons of earlier editions that are missing in this one."""

    name: str
    data: bytes
    questions: list[tuple[str, str]] = []
    forget_removed: bool = False
    by: str = ""


class DocumentForgetRequest(msgspec.Struct, frozen=True, tag="document-forget"):
    """Forget all lessons of a document; answered when the requests are recorded."""

    document: str
    by: str = ""


class QualityRequest(msgspec.Struct, frozen=True, tag="quality"):
    """Measure the model, or (`baseline`) take the present model as reference for later measurements."""

    baseline: bool = False
    by: str = ""


class UpdateOpenRequest(msgspec.Struct, frozen=True, tag="update-open"):
    """Begin an update of the weights by an outside trainer: no own step begins until it is committed or undone.
    Answered with `update`, `version` and `fingerprint` once no step is running. `by`: who asks, for people."""

    dialect: Dialect
    by: str


class UpdateJoinRequest(msgspec.Struct, frozen=True, tag="update-join"):
    """Join the group of processes of an outside trainer, from which tensors are broadcast (rank 0). Answered once it is
    formed. `backend` empty: gloo where weights are in host memory, else nccl; tensor: there is nothing to join, and
    tensors come by their handles; `nested`: names of the group are nested in its store as by
    `torch.distributed.new_group` (SGLang's clients); `unique_id`: that of a group of NCCL, which has no address
    and port then."""

    group: str
    address: str
    port: int
    rank: int
    world_size: int
    backend: str = ""
    nested: bool = False
    unique_id: bytes = b""


class UpdateReceiveRequest(msgspec.Struct, frozen=True, tag="update-receive"):
    """Receive tensors from a group. `layout`: each tensor is a broadcast; or all are one (`bucket`); or they are cut
    into buffers of more than `packed_bytes` (`packed`). `handles`: one a tensor, which is copied from there. After a
    failure the update is undone."""

    group: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    layout: Literal["each", "packed", "bucket"] = "each"
    packed_bytes: int = 0
    handles: list[Handle] = []


class UpdateDirectoryRequest(msgspec.Struct, frozen=True, tag="update-directory"):
    """Receive the tensors of a directory of safetensors files. After a failure the update is undone."""

    path: str
    load_format: str = "auto"


class UpdateCommitRequest(msgspec.Struct, frozen=True, tag="update-commit"):
    """Write what was received into the weights; answered with `version`, `fingerprint`, `tensors`, `bytes` and
    `seconds` once it is served. `label`: the trainer's own name of the version. `whole`: refuse, and undo, unless all
    tensors of the model were received, or those of the update before."""

    label: str = ""
    whole: bool = False


class UpdateUndoRequest(msgspec.Struct, frozen=True, tag="update-undo"):
    """End the update without a change. Answered, too, if there is none (`undone` false)."""

    reason: str
    by: str = ""


class UpdateLeaveRequest(msgspec.Struct, frozen=True, tag="update-leave"):
    """Leave a group; refused while it is received from."""

    group: str


class LeaseRequest(msgspec.Struct, frozen=True, tag="lease"):
    """Asks for the lease, groups that were joined, the version of the weights, and the label of the last update with
    the version that it names (`labelled`)."""


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """An answer: a JSON object in `body`; to StatusRequest, PauseRequest and ResumeRequest a `wire.status.Status`."""

    body: Any


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """A refusal. `code` is the exit code that ctl uses (docs/design.md, section 9); `retryable`: the request is valid
    and may succeed later."""

    error: str
    hint: str = ""
    code: int = 1
    retryable: bool = False
    missing: bool = False
    """the requested thing does not exist"""


# Each has a handler in `supervisor.requests`; a new one needs a line here.
Request = (
    StatusRequest
    | SubmitRequest
    | CheckpointRequest
    | PauseRequest
    | ResumeRequest
    | RollbackRequest
    | RelearnRequest
    | WithdrawRequest
    | ForgetRequest
    | FeedbackRequest
    | FeedbackQuestion
    | DecideRequest
    | EditRequest
    | BootstrapRequest
    | BootstrapStopRequest
    | QueueRequest
    | PatternsRequest
    | PatternAddRequest
    | PatternRetireRequest
    | DreamStartRequest
    | DreamStopRequest
    | TeachRequest
    | LessonQuestion
    | LessonsRequest
    | LessonPractiseRequest
    | LessonForgetRequest
    | TeachDocumentRequest
    | DocumentForgetRequest
    | EnvironmentRequest
    | QualityRequest
    | UpdateOpenRequest
    | UpdateJoinRequest
    | UpdateReceiveRequest
    | UpdateDirectoryRequest
    | UpdateCommitRequest
    | UpdateUndoRequest
    | UpdateLeaveRequest
    | LeaseRequest
)
Answer = Reply | Failure
