"""vLLM's general plugin `apollod`: runs in every vLLM process, before it loads anything.

vLLM logs and swallows what goes wrong here, so the supervisor waits for the loader's handshake and never trusts silence.
"""

import functools
import multiprocessing
import os

from apollod.engine.lifetime import die_with_parent


@functools.cache
def register() -> None:
    """Tie this process's life to its parent and add load format `apollod`. Idempotent; nothing without APOLLOD_SOCKET.

    Source: vllm/plugins/__init__.py, `load_general_plugins`.
    """
    if "APOLLOD_SOCKET" not in os.environ:
        return
    parent = multiprocessing.parent_process()
    if parent is not None:
        # vLLM 0.32: a SIGKILL of the API server orphans the engine core and its worker (issue 55510). Not by getppid:
        # under `forkserver` the parent in the kernel's sense is another process.
        die_with_parent(parent.is_alive)
    from vllm.model_executor.model_loader import register_model_loader

    from apollod.engine.loader import SharedLoader

    register_model_loader("apollod")(SharedLoader)
