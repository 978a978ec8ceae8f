"""Exit codes (docs/design.md, section 9): which error ends a command with which."""

from apollod.errors import EXIT_CODES, ApolloError

FAILED = 1


def code_of(error: ApolloError) -> int:
    """The exit code of a command that ends with this error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), FAILED)
