"""Errors of optimizers."""

from __future__ import annotations

from apollod.errors import ApolloError


class OptimizerError(ApolloError, ValueError):
    """A parameter, an option or a call that the optimizer cannot work with."""


class StateRefused(OptimizerError):
    """Optimizer state of another model, optimizer, rank, shape, dtype or version."""

    def __init__(self, what: str, saved: object, here: object) -> None:
        super().__init__(
            f"optimizer state does not fit: {what} is {saved} in the saved state and {here} here",
            "load the state that was saved with this model and these settings, or start with a fresh optimizer",
        )
