"""Tells whether the daemon has given up and waits for `ctl resume`. Pure."""

from apollod.core.state import State


def is_given_up(state: State) -> bool:
    """True if training is paused or halted, or a child is not started again, until a user resumes."""
    children, daemon = state.children, state.daemon
    return bool(children.engine.error or children.trainer.error or daemon.paused or daemon.halted)
