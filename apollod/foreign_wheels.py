"""Makes vLLM and transformers importable beside torchvision, torchaudio and torchcodec wheels built for another torch.

Their wheels on PyPI are built for CUDA; beside a CPU-only torch their C extensions do not load. vLLM 0.32 then fails in
three ways: `import torchvision` raises RuntimeError ("operator torchvision::nms does not exist") and Qwen3.5 needs it
(qwen3_5.py imports qwen3_vl.py); `import torchaudio` and `import torchcodec` raise OSError where vLLM and transformers
catch ImportError (multimodal/media/audio.py).

Every process that imports one of these packages is guarded first, in one place: engine and trainer in their `__main__`,
other commands and the tests by `guard_lazily`. In the engine a general plugin is too late: the subprocess that inspects
a model class (model_executor/models/registry.py, `_run_in_subprocess`) imports torchvision before it loads plugins, and
a spawned engine core unpickles vLLM's classes first. So `engine/site/sitecustomize.py` guards its children.

Law of this file: only the standard library is imported at the top. `sitecustomize.py` loads this file by its path.
"""

import ctypes
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_EXTENSIONS = {"torchvision": "_C*.so", "torchaudio": "lib/_torchaudio*.so", "torchcodec": "libtorchcodec_image*.so"}
_TRIGGERS = ("vllm", "transformers", *_EXTENSIONS)
_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[object] = []
"""Libraries, kept because operator definitions live only as long as theirs."""


def guard() -> None:
    """Guard this process now. Idempotent; no effect if all packages load. Imports torch if one of them is installed."""
    for name in _EXTENSIONS:
        if name in sys.modules or not _broken(name):
            continue
        if name == "torchvision":
            _define_operators()
        else:
            # None is Python's own mark for "not importable": `import` raises ModuleNotFoundError.
            sys.modules[name] = None  # type: ignore[assignment]


def guard_lazily() -> None:
    """Guard this process when it first imports vLLM, transformers or one of the packages. Costs nothing until then."""
    if not any(isinstance(finder, LazyGuard) for finder in sys.meta_path):
        sys.meta_path.insert(0, LazyGuard())


class LazyGuard:
    """Meta path finder that finds nothing, but guards the process before the first import that may need it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Always None, so that the import goes on to the next finder. Source: importlib's finder protocol."""
        if name in _TRIGGERS and self in sys.meta_path:
            sys.meta_path.remove(self)
            guard()
        return None


def _broken(package: str) -> bool:
    """True if the package is installed but its C extension does not load into this torch."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    import torch  # noqa: F401 - the extensions link against torch's libraries

    libraries = list(Path(spec.origin).parent.glob(_EXTENSIONS[package]))
    for library in libraries:
        try:
            ctypes.CDLL(str(library))
        except OSError:
            return True
    return package == "torchvision" and not libraries


def _define_operators() -> None:
    """Define the two operators that torchvision registers fake kernels for at import; no text model calls them."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _BOXES)  # type: ignore[no-untyped-call]
    _kept.append(library)
