"""Run by Python at the start of every child of the engine (its directory is on PYTHONPATH; see ../guards.py)."""

import sys

from apollod.engine.guards import LazyGuard

sys.meta_path.insert(0, LazyGuard())
