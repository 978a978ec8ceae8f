"""Guards to run before third-party imports that are known to fail on some machines."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import torch

_LIBRARIES: list[torch.library.Library] = []
"""Operator definitions live as long as the `Library` that made them, so they are kept here."""

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def guard_torchvision() -> None:
    """Let transformers and vLLM import where torchvision and torchaudio do not fit this torch.

    The wheels on PyPI are built for CUDA; beside a CPU-only torch their C extensions do not load.
    `import torchvision` (hence `transformers.image_utils` and vLLM's Qwen3.5) then fails with
    "operator torchvision::nms does not exist": the two operators that it registers fake kernels for
    are defined here, without an implementation (no text model calls them). `import torchaudio`
    (hence `transformers.audio_utils`) fails with OSError instead of ImportError: it is hidden, so
    that importers see an optional package that is not installed.

    Call before the first import of torchvision, torchaudio, transformers or vLLM. Imports neither
    package. Cheap, idempotent, and without effect where the extensions load.
    """
    if not _LIBRARIES and "torchvision" not in sys.modules and _broken("torchvision", "_C"):
        _define_operators()
    if "torchaudio" not in sys.modules and _broken("torchaudio", "lib/_torchaudio"):
        # None is Python's own mark for "not importable": `import` raises ModuleNotFoundError and
        # `importlib.util.find_spec` returns None.
        sys.modules["torchaudio"] = None  # type: ignore[assignment]


def _define_operators() -> None:
    """Define `torchvision::nms` and `torchvision::qnms` where they do not exist yet."""
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):  # another guard in this process may have been first
            library.define(name + _BOXES)  # type: ignore[no-untyped-call]
    _LIBRARIES.append(library)


def _broken(package: str, extension: str) -> bool:
    """Whether the package is installed but its C extension does not load into this torch.

    Args:
        package: top-level package name.
        extension: path of the extension below the package, without the file name's suffix.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(spec.origin).parent / (extension + suffix)
        if path.is_file():
            try:
                torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
            except (ImportError, OSError):
                return True
            return False
    return package == "torchvision"  # torchaudio does without the file, torchvision does not
