"""Run by Python at the start of every child of the engine (its directory is on PYTHONPATH; see ../guards.py).

Loads that file by its path: apollod itself need not be importable yet.
"""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("apollod_engine_guards", Path(__file__).parents[1] / "guards.py")
assert _spec is not None and _spec.loader is not None
_guards = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_guards)
sys.meta_path.insert(0, _guards.LazyGuard())
