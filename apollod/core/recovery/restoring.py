"""Builds the effect that restores a checkpoint; shared by recovery and rollback."""

from apollod.core.checkpoints.state import CheckpointRef
from apollod.core.recovery.effects import Restore
from apollod.core.state import State


def restore_from(state: State, origin: CheckpointRef | None) -> Restore:
    """Restore the weights and optimizer of a checkpoint, or those before the first step."""
    recovery = state.recovery
    return Restore(
        path=origin.path if origin else "", model_dir=state.daemon.model_path, weights=True,
        fingerprint=origin.fingerprint if origin else recovery.base_fingerprint,
        checkpoints=f"{state.daemon.state_dir}/checkpoints", base=recovery.base.path if recovery.base else "",
    )  # fmt: skip
