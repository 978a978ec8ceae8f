"""The options by which commands find and override the configuration."""

import argparse
import os


def from_environment() -> str | None:
    """The file that is meant where none is named."""
    return os.environ.get("APOLLOD_CONFIG")


def config_file(
    parser: argparse.ArgumentParser, text: str = "the daemon's TOML file", default: str | None = ""
) -> None:
    """--config. `default`: what else stands where none is named; empty: the file that the environment names."""
    parser.add_argument("--config", metavar="FILE", default=from_environment() if default == "" else default, help=text)


def whole_config(parser: argparse.ArgumentParser) -> None:
    """--config, and --set for single values."""
    config_file(parser, "TOML file ($APOLLOD_CONFIG)")
    parser.add_argument(
        "--set",
        metavar="SECTION.KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="override one value; repeatable",
    )
