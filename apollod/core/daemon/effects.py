"""What the world is asked to do: a life of the daemon."""

from apollod.core.kernel.effect import Effect


class Exit(Effect, frozen=True):
    """Everything is down; leave."""
