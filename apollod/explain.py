"""Any exception as what a person is told: the error with a hint, or its one line.

The journal's own errors (SQLite's) are told by `adapters.journal.failures`, which knows the file that they are about.
"""

from pathlib import Path

from apollod.errors import ApolloError, NotPermitted
from apollod.permission import denied

PATH_HINT, DIRECTORY_HINT = "check the path and its disk", "check the directory, its owner and the disk"


def explain(error: Exception, doing: str = "", place: str | Path = "") -> ApolloError:
    """The error to end a command or refuse a request with. `doing`: what failed, in a word; `place`: what it was
    about, if the system names no file."""
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
    """The one line for a log, an event or an answer: an ApolloError's own, else the class and what it says."""
    text = error.line() if isinstance(error, ApolloError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def reason(error: OSError) -> str:
    """What the system said, without the number and the file: `No space left on device`."""
    return error.strerror or str(error)
