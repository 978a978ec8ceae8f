"""A process that syncs generation after generation into a directory and says so, to be killed: DIR FIRST."""

import random
import sys
from pathlib import Path

import numpy as np

from apollod.store.model_files import read_files
from apollod.store.pieces import Piece
from apollod.store.sync import sync

BLOCK = 4096
SHARES = (0.01, 0.1, 1.0)


def after(data: np.ndarray, step: int) -> np.ndarray:
    """Weights, uint8, of generation `step`: those before it with some blocks (by its number: few, more, all)
    changed."""
    changed = data.copy()
    share = SHARES[random.Random(step).randrange(len(SHARES))]
    blocks = np.flatnonzero(np.random.default_rng(step).random(len(data) // BLOCK) < share)
    changed.reshape(-1, BLOCK)[blocks] += np.uint8(1 + step % 255)
    return changed


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Goes on from generation FIRST, which the directory holds, until it is killed."""
    directory, number = Path(sys.argv[1]), int(sys.argv[2])
    files = read_files(directory)
    data = np.concatenate([np.fromfile(directory / f.name, np.uint8, offset=len(f.header)) for f in files])
    data = after(data, number + 1)
    _say("ready")
    while True:
        number += 1
        each = len(data) // len(files)
        pieces = [Piece(f.name, len(f.header), data[i * each : (i + 1) * each]) for i, f in enumerate(files)]
        done = sync(directory, iter(pieces), number)
        _say(" ".join([str(number), *sorted({file.how for file in done.files})]))
        data = after(data, number + 1)


if __name__ == "__main__":
    main()
