"""`apollod run`."""

import argparse

from apollod.cli import config_options


def add(parser: argparse.ArgumentParser) -> None:
    config_options.whole_config(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the daemon until SIGTERM or SIGINT; 0 after a clean end."""
    import anyio

    from apollod.adapters.system import log
    from apollod.supervisor import app
    from apollod.supervisor.config import load_config

    config = load_config(args.config, args.overrides)
    log.configure(config.log.level, config.log.format)
    anyio.run(app.run, config)
    return 0
