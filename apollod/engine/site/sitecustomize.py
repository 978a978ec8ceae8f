"""Run by Python at the start of every child of the engine: `python -m apollod.engine` puts this directory on
PYTHONPATH.

No other hook runs early enough. vLLM's plugins are loaded too late for the import guard, and after a handshake in which
an orphaned engine core waits for minutes (v1/engine/core.py); multiprocessing does not import a package's `__main__`
again. Loads two modules of apollod by path: the package itself need not be importable yet.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


def _module(path: str) -> ModuleType:
    file = Path(__file__).parents[2] / path
    spec = importlib.util.spec_from_file_location(f"apollod_site_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # keeps it alive, and with it the operators that it defines
    spec.loader.exec_module(module)
    return module


if "--multiprocessing-fork" in sys.orig_argv:  # multiprocessing/spawn.py, get_command_line
    # Engine core or worker: SIGKILL of the API server orphans them (vLLM 0.26 and 0.32, issue 55510). The resource
    # tracker stays and cleans up. The process that adopts an orphan is not in the engine's process group.
    _module("adapters/system/own_process.py").die_with_parent(lambda: os.getpgid(os.getppid()) == os.getpgrp())
_module("foreign_wheels.py").guard_lazily()
