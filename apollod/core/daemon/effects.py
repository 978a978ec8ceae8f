"""The effect that ends the daemon."""

from apollod.core.kernel.effect import Effect


class Exit(Effect, frozen=True):
    """End the daemon; all children are down."""
