"""Exit codes (DESIGN section 9): which error ends a command with which, and the way back from a daemon's refusal."""

from apollod.errors import ApolloError, ConfigError, DaemonUnreachable, NotPermitted
from apollod.permission import denied

FAILED = 1
CODES: dict[type[ApolloError], int] = {ConfigError: 2, DaemonUnreachable: 3, NotPermitted: 4}


def code_of(error: ApolloError) -> int:
    """The exit code of a command that ends with this error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED)


def error_of(code: int) -> type[ApolloError]:
    """The error that ends a command with this exit code."""
    return next((kind for kind, of_kind in CODES.items() if of_kind == code), ApolloError)


def explain(error: OSError) -> ApolloError:
    """What the system refused, in a line that names the file."""
    if isinstance(error, PermissionError):
        return denied(error.filename) if error.filename else NotPermitted(str(error), "run this as another user")
    what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return ApolloError(what, "check the path and its disk")
