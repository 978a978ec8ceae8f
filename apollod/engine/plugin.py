"""vLLM's general plugin `apollod`: runs in every vLLM process, before it loads anything.

vLLM logs and swallows errors here, so the supervisor waits for the loader's handshake and never trusts silence.
"""

import functools
import os


@functools.cache
def register() -> None:
    """Add load format `apollod`. Idempotent; nothing without APOLLOD_SOCKET.

    Source: vllm/plugins/__init__.py, `load_general_plugins`.
    """
    if "APOLLOD_SOCKET" not in os.environ:
        return
    from vllm.model_executor.model_loader import register_model_loader

    from apollod.engine.load.loader import SharedLoader

    register_model_loader("apollod")(SharedLoader)
