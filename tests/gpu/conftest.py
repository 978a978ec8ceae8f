"""What needs an NVIDIA GPU; without one every test here is skipped and says why. All share it, one after another."""

from pathlib import Path

import pytest


def why_not() -> str:
    """Why nothing here can run; empty where it can."""
    import torch

    if not torch.cuda.is_available():
        return f"no NVIDIA GPU: torch {torch.__version__} sees none"
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return f"Triton cannot be imported ({error})"
    return ""


@pytest.hookimpl(tryfirst=True)  # before the selection by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker("alone")
    if here and (reason := why_not()):
        for item in here:
            item.add_marker(pytest.mark.skip(reason=reason))
