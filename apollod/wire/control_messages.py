"""Messages of the control socket: one request a connection, one answer.

A file of its own, since `apollod ctl status` needs these and nothing else of the protocol. Tags are explicit strings:
they are the protocol, class names are not.
"""

from typing import Any, Literal

import msgspec

from apollod.core.intake.events import StripLevel
from apollod.core.settings import PatternSettings


class StatusRequest(msgspec.Struct, frozen=True, tag="status"):
    """`apollod ctl status`."""


SUBMIT_LINES = 1000
"""of one request, at most: each that is none is kept, and made durable, before it is answered"""


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
    """Train again; also tries a child again that was given up."""


class RollbackRequest(msgspec.Struct, frozen=True, tag="rollback"):
    """Bring the served weights back to a step; answered when they are."""

    to: int


class RelearnRequest(msgspec.Struct, frozen=True, tag="relearn"):
    """Put examples back into the queue whose steps were taken back, or that were withdrawn."""

    examples: list[str]


class WithdrawRequest(msgspec.Struct, frozen=True, tag="withdraw"):
    """Take examples out of the queue: these, or all that wait of a source (its identity or its path)."""

    examples: list[str] = []
    source: str = ""


class ForgetRequest(msgspec.Struct, frozen=True, tag="forget"):
    """Take what these examples taught out of the weights; answered when the wish is recorded."""

    examples: list[str]
    reason: str = ""


class FeedbackRequest(msgspec.Struct, frozen=True, tag="feedback"):
    """Rate an answer of the engine; answered when it is recorded. `choice`: which of several, None where there is only
    one. `by`: where it was given."""

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


class DecisionWanted(msgspec.Struct, frozen=True):
    """`only_in`: nothing is done if the example is in another state by now, such as `held`: somebody else decided
    meanwhile."""

    example: str
    choice: Literal["approve", "decline", "hold"]
    reason: str = ""
    only_in: str = ""


class DecideRequest(msgspec.Struct, frozen=True, tag="decide"):
    """Approve, decline or hold examples, all of them or none if `together`; `by`: who says so, in their own words."""

    decisions: list[DecisionWanted]
    by: str = ""
    together: bool = False


class EditRequest(msgspec.Struct, frozen=True, tag="edit"):
    """Learn `record` (a line as for the inbox) instead of an example. `only_in`: as in `DecisionWanted`."""

    example: str
    record: bytes
    by: str = ""
    only_in: str = ""


class QueueRequest(msgspec.Struct, frozen=True, tag="queue"):
    """List the examples that are learned next, at most `limit`, and why."""

    limit: int = 20


class BootstrapRequest(msgspec.Struct, frozen=True, tag="bootstrap"):
    """Read `path` (absolute) once and learn it by these rules, which mean what they mean in `[[watch]]`. Without
    `models` it is the served one's. `by`: who asks, in their own words."""

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
    """Read no more of it."""

    by: str = ""


class PatternsRequest(msgspec.Struct, frozen=True, tag="patterns"):
    """Describe patterns, how far each is, and why no dream is made now."""


class PatternAddRequest(msgspec.Struct, frozen=True, tag="pattern-add"):
    """Learn a behaviour; its paths are absolute. In place of another one of this name, if there is one. `by`: who asks,
    in their own words."""

    pattern: PatternSettings
    by: str = ""


class PatternRetireRequest(msgspec.Struct, frozen=True, tag="pattern-retire"):
    """Dream of it no more."""

    name: str
    by: str = ""


class DreamStartRequest(msgspec.Struct, frozen=True, tag="dream-start"):
    """Dream now, whatever the schedule says: of one pattern or (empty) of all, so many practices or (0) until all is
    settled."""

    pattern: str = ""
    count: int = 0
    by: str = ""


class DreamStopRequest(msgspec.Struct, frozen=True, tag="dream-stop"):
    """Begin no further dream until a user starts them again."""

    by: str = ""


class TeachRequest(msgspec.Struct, frozen=True, tag="teach"):
    """Teach a statement, the answer to a question, or a behaviour; answered when it is recorded. `replaces`: id of the
    lesson that it corrects, whose question it has where it brings none. `by`: who asks, in their own words.
    `pattern`: the behaviour, which is given a name if it has none."""

    statement: str = ""
    question: str = ""
    answer: str = ""
    replaces: str = ""
    by: str = ""
    pattern: PatternSettings | None = None


class LessonQuestion(msgspec.Struct, frozen=True, tag="lesson-question"):
    """All about one lesson. `given_at`: of behaviours that had this name, the one of that row; 0: the one that
    stands."""

    lesson: str
    given_at: float = 0.0


class LessonsRequest(msgspec.Struct, frozen=True, tag="lessons"):
    """The newest lessons, the newest first: at most `limit` (0: all), in this state only (empty: in any)."""

    state: str = ""
    limit: int = 0
    document: str = ""
    """of this document only; empty: of any, and of none"""


class LessonPractiseRequest(msgspec.Struct, frozen=True, tag="lesson-practise"):
    """Ask a lesson, and practise it where it fails, whatever is known of it."""

    lesson: str
    by: str = ""


class LessonForgetRequest(msgspec.Struct, frozen=True, tag="lesson-forget"):
    """Teach it no more, and take what its steps taught out of the weights; answered when the wish is recorded."""

    lesson: str
    by: str = ""


class TeachDocumentRequest(msgspec.Struct, frozen=True, tag="teach-document"):
    """Teach what a document says, each fact as a lesson; answered when all are recorded. `name`: its file's name, by
    which a later edition is known; `questions`: with their answers, which are taught in place of what is found in it;
    `forget_removed`: forget lessons of earlier editions that this one does not say any more."""

    name: str
    data: bytes
    questions: list[tuple[str, str]] = []
    forget_removed: bool = False
    by: str = ""


class DocumentForgetRequest(msgspec.Struct, frozen=True, tag="document-forget"):
    """Forget all lessons of a document; answered when the wishes are recorded."""

    document: str
    by: str = ""


class QualityRequest(msgspec.Struct, frozen=True, tag="quality"):
    """Measure the model, or (`baseline`) have later measurements compared with the model as it is now."""

    baseline: bool = False
    by: str = ""


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """An answer: a JSON object in `body`; to StatusRequest, PauseRequest and ResumeRequest a `wire.status.Status`."""

    body: Any


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """A refusal. `code` is the exit code that ctl uses (docs/design.md, section 9); `retryable`: nothing is wrong
    with the request, and later it may be granted."""

    error: str
    hint: str = ""
    code: int = 1
    retryable: bool = False
    missing: bool = False
    """what was asked for is not there"""


# Each has a handler in `supervisor.requests`; a new one needs a line here and one there.
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
    | QualityRequest
)
Answer = Reply | Failure
