"""The real daemon as the measured object: the driver of demo and tests, with settings for long runs."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from apollod.testing import daemon as driver
from apollod.wire import messages as msg


def build_model(path: Path, kind: str) -> Path:
    """Build a small Qwen3.5 here; its text output goes to stderr."""
    subprocess.run(
        [sys.executable, "-m", "apollod.demo.tiny_model", str(path), "--kind", kind],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return path


class Daemon(driver.Daemon):
    """A daemon on a model that it may write. `trainer`, `checkpoint`: lines of those sections; `engine`: further
    arguments."""

    def __init__(
        self, root: Path, model: Path, trainer: str = "", checkpoint: str = "", engine: Sequence[str] = ()
    ) -> None:
        port = driver.free_port()
        args = json.dumps(["--max-model-len", "1024", "--max-num-seqs", "16", *engine])
        config = driver.config_of(
            root, model, port,
            engine=f'served_name = "bench"\nargs = {args}\n',
            checkpoint=f"delay_s = 3600\n{checkpoint}", log='level = "warning"\n', trainer=trainer,
        )  # fmt: skip
        super().__init__(root, config, port)

    def train(self, on: bool) -> None:
        """Resume or pause training."""
        self.request(msg.ResumeRequest() if on else msg.PauseRequest())
