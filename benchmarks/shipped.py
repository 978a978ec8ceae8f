"""The configuration that `apollod init` writes, and changes to it for benchmarks."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any


def initialised(root: Path, model: Path | None = None) -> str:
    """Text of the file that `apollod init` writes into `root`, with a copy of the model (default: the small world
    model) in `root/model`."""
    with resources.as_file(resources.files("apollod") / "data" / "world-model") as shipped:
        shutil.copytree(model or shipped, root / "model")
    init = [sys.executable, "-m", "apollod", "init", str(root), "--model", str(root / "model")]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (root / "apollod.toml").read_text(encoding="utf-8")


def configured(text: str, settings: Mapping[str, Mapping[str, Any]]) -> str:
    """A configuration text with these keys set, at the head of their sections; their former lines are removed."""
    for section, keys in settings.items():
        if f"[{section}]\n" not in text:
            text += f"\n[{section}]\n"
        head, body, rest = _split(text, section)
        for key in keys:
            body = re.sub(rf"(?m)^{re.escape(key)}\s*=.*\n", "", body)
        text = head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()) + body + rest
    return text


def _split(text: str, section: str) -> tuple[str, str, str]:
    """The text up to the head of a section, the section's lines, and the rest."""
    start = text.index(f"[{section}]\n") + len(section) + 3
    end = text.find("\n[", start)
    end = len(text) if end < 0 else end + 1
    return text[:start], text[start:end], text[end:]
