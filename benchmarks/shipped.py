"""The configuration that `apollod init` writes, for a benchmark: another port, and what it says more."""

import re
import subprocess
import sys
from pathlib import Path


def shipped(root: Path, port: int, probes: Path) -> str:
    """That of `root` with the model in `root/model`; `probes` are asked besides those that ship."""
    init = [sys.executable, "-m", "apollod", "init", str(root), "--model", str(root / "model")]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
    text = (root / "apollod.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^port = .*$", f"port = {port}", text)
    return re.sub(r"(?m)^(every_steps = .*)$", rf'\1\nprobe = ["{probes}"]', text)


def at_rate(config: str, lr: float) -> str:
    """With another learning rate of files."""
    return re.sub(r"(?m)^lr = ", f"lr = {lr}  # written: ", config)
