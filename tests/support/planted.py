"""How an engine is started with a planted copy of one weight: see `planted_copy`, which only its worker imports."""

import os
from pathlib import Path

PLANTED = "model.layers.2.mlp.down_proj.weight"
ARGUMENTS = ("--worker-extension-cls", "support.planted_copy.Extension")
PATH = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])}
"""environment in which the worker finds the extension"""
