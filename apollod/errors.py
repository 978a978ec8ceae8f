"""Every error that apollod raises on purpose.

An error carries the problem, the offending value, and a remedy (`hint`), so that any handler can print one clear line
without knowing its origin. Call sites read `raise JournalGap(expected, found)`.
"""

from collections.abc import Iterable


class ApolloError(Exception):
    """Base of all deliberate errors.

    `hint` says what the user can do. `retryable`: the same call may succeed later without a change.
    """

    hint: str = ""
    retryable: bool = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    def line(self) -> str:
        """The error as one line for a person: message, then hint."""
        text = " ".join(str(self).split())
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(ApolloError):
    """A configuration value or key that cannot be used."""


class FrameError(ApolloError):
    """Bytes on a socket that are not a frame of this protocol."""


class LinkClosed(ApolloError):
    """The other end of a socket went away."""

    retryable = True


class DaemonUnreachable(ApolloError):
    """No daemon answers on the control socket."""

    retryable = True


class NotPermitted(ApolloError):
    """The peer or the caller may not do this."""


class AlreadyRunning(ApolloError):
    """A second daemon on the same state directory."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(
            f"another apollod (pid {pid}) is already running on {path}",
            f"stop it with `kill {pid}`, or give this one another [state] dir",
        )
        self.pid = pid


class ModelRefused(ApolloError):
    """A model directory or engine setting whose weights cannot be shared."""


class LlmError(ApolloError):
    """A model asked over HTTP gave no usable answer."""


class LlmUnreachable(LlmError):
    """The endpoint does not answer, or the connection broke before the answer was complete."""

    hint = "look whether it runs, and at its base URL"
    retryable = True


class LlmTimedOut(LlmError):
    """No complete answer within the time limit."""

    hint = "ask for less, or allow more time"
    retryable = True


class LlmRefused(LlmError):
    """An answer with an HTTP status other than 200, and its message. `retry_after_s`: the requested waiting time."""

    _HINTS = {401: "check the API key", 403: "check the API key", 404: "check base URL and model"}

    def __init__(self, url: str, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{url} answered {status}: {message}", self._HINTS.get(status, ""))
        self.status = status
        self.retryable = status == 429 or status >= 500
        self.retry_after_s = retry_after_s


class LlmNonsense(LlmError):
    """An answer of an unexpected form."""

    hint = "look whether the endpoint speaks the OpenAI API and has what was asked of it"


class VerdictNonsense(ApolloError):
    """A judge's answer that cannot be parsed as a verdict."""


class ProbesBroken(ApolloError):
    """A run of probes that ended early because the endpoint went away, or (`unable`) has no such answers."""

    hint = "nothing of this run counts; run the probes again when the endpoint answers"
    retryable = True

    def __init__(self, measured: int, of: int, why: str, unable: bool = False) -> None:
        super().__init__(f"the probes ended after {measured} of {of} items: {why}")
        self.measured, self.of, self.unable = measured, of, unable


class DreamNonsense(ApolloError):
    """An imagination's answer that cannot be parsed as a scenario."""


class DreamCut(ApolloError):
    """An imagined scenario or an answer was cut off at its limit of tokens."""

    def __init__(self, what: str, tokens: int, key: str) -> None:
        super().__init__(f"{what} was cut off after {tokens} tokens", f"allow more with {key}")


class DreamCheckFailed(ApolloError):
    """A pattern's check that did not say whether an answer passes."""

    hint = "try it by hand; [[dream.pattern]] check"


class EnvironmentFailed(ApolloError):
    """An environment of reinforcement learning that gave no usable reply. `environment`: its entry or URL; `outside`:
    it cannot be reached, which says nothing about what it was asked."""

    def __init__(self, environment: str, happened: str, hint: str, outside: bool = False) -> None:
        super().__init__(f"the environment {environment} {happened}", hint)
        self.environment, self.outside = environment, outside


class ReceiveFailed(ApolloError):
    """Weights of a foreign trainer that did not arrive, or that cannot be used."""


class NcclFailed(ApolloError):
    """A call of NCCL's library that failed, or no such library."""


class LessonRefused(ApolloError):
    """A statement or a question with its answer that cannot be taught."""


class SeedsUnreadable(ApolloError):
    """None of a pattern's seeds can be read."""

    hint = "look at [[dream.pattern]] seeds"


class JournalError(ApolloError):
    """The journal cannot be opened, read or appended to. `of_disk`: the disk refused, so that another reading may
    succeed."""

    of_disk = False


class ChainBroken(JournalError):
    """An event that is missing or does not match its hash. `seq`: the first such event."""

    def __init__(self, path: str, seq: int) -> None:
        super().__init__(
            f"the journal {path} was edited: event {seq} is missing or does not match its hash",
            "nothing was written; restore a backup"
            + (f", or look at what is good: `apollod ctl replay --file {path} --to {seq - 1}`" if seq > 1 else ""),
        )
        self.seq = seq


class RecordRefused(ApolloError):
    """An inbox line that is not a training record."""


class ScoreRefused(ApolloError):
    """An answer whose log-probabilities with and without its context cannot be compared."""


class SourceRefused(ApolloError):
    """A log that this apollod cannot go on reading."""


class SourceLocked(SourceRefused):
    """A database that another program keeps locked now."""

    retryable = True


class ShareRefused(ApolloError):
    """Weights that differ in some bit from the required ones."""


class SendFailed(ApolloError):
    """An engine elsewhere did not take a version of the weights."""


class SelectionRefused(ApolloError):
    """Layers or patterns of `[trainer]` that do not fit the model."""


class OutOfMemory(ApolloError):
    """A step that needs more memory than there is."""

    hint = "shorten the example, lower [trainer] max_tokens, or set gradient_checkpointing = true"

    def __init__(self, tokens: int, examples: int, anchors: int, detail: str) -> None:
        several = f" in {examples} examples" if examples > 1 else ""
        held = f" with {anchors} anchors" if anchors else ""
        super().__init__(f"out of memory in a step over {tokens} tokens{several}{held} ({detail})")


class DoesNotFit(ApolloError):
    """Weights, training and serving that together need more memory than there is."""


class WeightsDamaged(ApolloError):
    """Weights that are NaN or infinite."""

    hint = "the model directory or the last steps are broken; `apollod replay` tells from which step on"

    def __init__(self, names: list[str]) -> None:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        super().__init__(f"the weights hold NaN or infinity in {', '.join(names[:3])}{more}")


class ReplayError(ApolloError):
    """Steps that cannot be run again."""


class ReplayHopeless(ReplayError):
    """Recorded steps that can never be run again here."""


class CheckpointError(ApolloError):
    """A checkpoint that is missing, incomplete or of another model."""


class SyncError(CheckpointError):
    """Weights that could not be written into the model directory. `committed`: the redo record is durable, so
    `recover` finishes the write; otherwise the directory holds the old weights."""

    def __init__(self, message: str, hint: str, committed: bool = False) -> None:
        super().__init__(message, hint)
        self.committed = committed


class ModelEdited(CheckpointError):
    """Weight files that are not what the last sync left."""


class RedoRefused(CheckpointError):
    """A redo record that is damaged or of another model."""


class DeltaRefused(CheckpointError):
    """An undo delta that is damaged or does not belong to these weights."""


class WeightsLocked(ApolloError):
    """Weight files that another process reads or writes now."""

    retryable = True


EXIT_CODES: dict[type[ApolloError], int] = {ConfigError: 2, DaemonUnreachable: 3, NotPermitted: 4}
"""Exit codes of commands, also used for a daemon's refusal (`Failure.code`); every other error is 1 (DESIGN
section 9)."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, for a hint; empty: none is known."""
    from difflib import get_close_matches  # here for start-up time

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.0)), "")


def unknown(noun: str, name: str, known: Iterable[str], otherwise: str = "") -> ApolloError:
    """The error for a name that no pattern, environment or the like has; `otherwise`: hint if there is none at all."""
    near, listed = nearest(name, known), f"`apollod ctl {noun} list` has them"
    hint = f"did you mean {near}? {listed}" if near else otherwise or listed
    return ApolloError(f"there is no {noun} {name}", hint)


def refusal(code: int, message: str, hint: str) -> ApolloError:
    """A daemon's refusal as the error that ends a command with this exit code."""
    return next((kind for kind, of_kind in EXIT_CODES.items() if of_kind == code), ApolloError)(message, hint)
