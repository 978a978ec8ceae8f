"""The history of checkpoints as commands open it, and the files beside the weights that an export takes along."""

import time
from pathlib import Path

from apollod.adapters.system.model_dir import files_below
from apollod.adapters.weights.base_model import OTHER_WEIGHTS, WEIGHTS
from apollod.store.entry import ENTRY
from apollod.store.history import History

BUSY_S = 60.0
"""A sync that is at work is waited for this long."""


def open_history(checkpoints: Path, model_dir: Path, base: Path | None, wait_s: float = BUSY_S) -> History:
    """What lies there, if need be after a sync that is at work. Raises CheckpointError."""
    end = time.monotonic() + wait_s
    while (history := History.read(checkpoints, model_dir, base)).model.busy and time.monotonic() < end:
        time.sleep(0.5)
    return history


def other_files(history: History) -> list[Path]:
    """Relative paths of config, tokenizer and the like; nothing of ours."""
    return [name for name in files_below(history.template, (*OTHER_WEIGHTS, WEIGHTS)) if name.parts[0] != ENTRY]
