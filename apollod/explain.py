"""Converts any exception for display to a person: the error with a hint, or its one line.

Errors of the journal's SQLite are explained by `adapters.journal.failures`, which knows their file.
"""

from pathlib import Path

from apollod.errors import ApolloError, NotPermitted
from apollod.permission import denied

PATH_HINT, DIRECTORY_HINT = "check the path and its disk", "check the directory, its owner and the disk"


def explain(error: Exception, doing: str = "", place: str | Path = "") -> ApolloError:
    """The error to end a command or refuse a request with. `doing`: the failed action, in a word; `place`: its subject,
    if the system names no file."""
    if isinstance(error, ApolloError):
        return error
    if not isinstance(error, OSError):
        return ApolloError(line_of(error))
    if isinstance(error, PermissionError):
        denied_place = error.filename or place
        return denied(denied_place) if denied_place else NotPermitted(str(error), "run this as another user")
    if doing:
        return ApolloError(f"{doing} failed ({error})", DIRECTORY_HINT)
    return ApolloError(f"{error.filename}: {error.strerror}" if error.filename else reason(error), PATH_HINT)


def line_of(error: BaseException) -> str:
    """The one line for a log, an event or an answer: an ApolloError's own, else class and message."""
    text = error.line() if isinstance(error, ApolloError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def reason(error: OSError) -> str:
    """The system's message without number and file: `No space left on device`."""
    return error.strerror or str(error)
