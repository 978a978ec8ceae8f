"""`apollod ctl judge show|test`: how far the judge is trusted, where it was wrong, and how it does on planted cases
now."""

import argparse

from apollod.cli.control import ctl
from apollod.errors import ConfigError


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "the model that judges examples before they are learned"
    shown, _ = ctl.actions(
        parser,
        ("show", "how far its verdicts are trusted, the cases it got wrong, and where people decided otherwise", _show),
        ("test", "ask it about every planted case now; needs the configuration and no daemon, changes nothing", _test),
    )
    ctl.of_a_copy(shown)


def _show(args: argparse.Namespace) -> int:
    from apollod.cli.control.questions import judge_facts

    return judge_facts.show(args)


def _test(args: argparse.Namespace) -> int:
    if not args.config:
        raise ConfigError("the judge stands in the configuration", "give --config FILE, or set APOLLOD_CONFIG")
    from apollod.cli.control import judge_trial  # asks over HTTP, which takes time to import
    from apollod.supervisor.config import load_config

    return judge_trial.run(load_config(args.config), args.json)
