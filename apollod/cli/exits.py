"""Exit codes (docs/design.md, section 9): which error ends a command with which."""

from apollod.errors import EXIT_CODES, ApolloError

FAILED = 1
REFUSED_BY_GUARD = 5
"""of a command that was done, and that an alarm of the quality guard came of"""


def code_of(error: ApolloError) -> int:
    """The exit code of a command that ends with this error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), FAILED)
