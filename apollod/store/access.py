"""Refuses to write into model directories that other programs may share, and names the command that makes a private
copy."""

import os
import shlex
from pathlib import Path

from apollod.errors import ModelRefused


def check_writable(model_dir: Path) -> None:
    """Raise ModelRefused, with the command that makes a private copy, unless the weights there are ours to change.

    A shared hub cache holds the same files for every program of the user, as links into `blobs`.
    """
    if not model_dir.is_dir():
        raise ModelRefused(f"{model_dir} is no directory", "give a local Hugging Face directory")
    if reason := _shared(model_dir):
        raise ModelRefused(f"{model_dir} {reason}: other programs load the same files", _copy(model_dir))
    for item in sorted(model_dir.glob("*.safetensors")):
        if item.is_symlink():
            raise ModelRefused(f"{item} is a link to {os.readlink(item)}, which others may use", _copy(model_dir))
        if not os.access(item, os.R_OK | os.W_OK):
            raise ModelRefused(f"{item} is not ours to write", _copy(model_dir))
    if not os.access(model_dir, os.R_OK | os.W_OK | os.X_OK):
        raise ModelRefused(f"{model_dir} is not ours to write", _copy(model_dir))


def _shared(model_dir: Path) -> str:
    real = model_dir.resolve()
    for path in {model_dir.absolute(), real}:
        for cache in _caches():
            if path.is_relative_to(cache):
                return f"lies in the Hugging Face cache {cache}"
        names = path.parts
        for at, name in enumerate(names[:-1]):
            if name.startswith("models--") and names[at + 1] in ("snapshots", "blobs"):
                return f"lies in the Hugging Face cache {Path(*names[:at])}"
    return ""


def _caches() -> list[Path]:
    """Directories where huggingface_hub keeps its cache: HF_HUB_CACHE, else HF_HOME/hub, else
    ~/.cache/huggingface/hub."""
    home = Path(
        os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    ).expanduser()
    named = [os.environ.get(name) for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")]
    caches = [home / "hub", *(Path(path).expanduser() for path in named if path)]
    return [form for cache in caches for form in (cache.absolute(), cache.resolve())]


def _copy(model_dir: Path) -> str:
    target = Path("~/models").expanduser() / _model_name(model_dir)
    return (
        f"make a private copy and use that: `mkdir -p {shlex.quote(str(target))} && cp -a --reflink=auto -L "
        f"{shlex.quote(str(model_dir))}/. {shlex.quote(str(target))}/`"
    )


def _model_name(model_dir: Path) -> str:
    """Name of the model: for `models--org--name/snapshots/<hash>`, `name`."""
    for part in reversed(model_dir.absolute().parts):
        if part.startswith("models--"):
            return part.rpartition("--")[2]
    return model_dir.absolute().name or "model"
