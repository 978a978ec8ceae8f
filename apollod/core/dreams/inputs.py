"""What can happen: people use the engine, or nobody does."""

from apollod.core.kernel.input import Input


class EngineUse(Input, frozen=True):
    """Somebody else than this daemon has requests at the engine, or ended some since the last look; else nobody.

    `unknown`: why that cannot be said; `users` is true then, since nobody should be kept waiting by a guess.
    """

    users: bool
    unknown: str = ""
