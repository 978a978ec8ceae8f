"""`apollod config check|show`."""

import argparse
import json
import sys
from typing import Any

import msgspec

from apollod.adapters.system.web_address import is_url, origin
from apollod.cli import commands
from apollod.cli.render import toml_value
from apollod.errors import ConfigError
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.sections import RETIRED


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    check = verbs.add_parser("check", help="say whether it can be used, and what it takes")
    check.add_argument(
        "--memory", action="store_true", help="what weights, optimizer and a step take in memory; nothing is loaded"
    )
    check.add_argument(
        "--device-gb", type=_gigabytes, metavar="GB", help="with --memory: of the GPU, 10^9 bytes; exit 1 if too few"
    )
    commands.as_json(check)
    commands.whole_config(check)
    check.set_defaults(run=_check)
    show = verbs.add_parser("show", help="print every value in force, as TOML")
    commands.as_json(show, "one JSON object; secrets are left out, as in the TOML form")
    commands.whole_config(show)
    show.set_defaults(run=_show)


def _gigabytes(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _check(args: argparse.Namespace) -> int:
    warnings = list[str]()
    loaded = load_config(args.config, args.overrides, warn=warnings.append)
    if args.device_gb and not args.memory:
        raise ConfigError("--device-gb is of the memory table", "add --memory")
    from apollod.cli import config_check  # looks at the model and the disk, which takes time to import

    if args.memory:
        return config_check.check_memory(loaded, args.device_gb, args.json)
    return config_check.check(loaded, args.json, warnings)


def _show(args: argparse.Namespace) -> int:
    shown = _shown(load_config(args.config, args.overrides, warn=_warn))
    print(json.dumps({"schema_version": 1, **shown}) if args.json else _toml(shown))
    return 0


def _warn(text: str) -> None:
    print(f"apollod: warning: {text}", file=sys.stderr)


def _shown(loaded: Config) -> dict[str, Any]:
    """Every value but the secrets, and those that are recorded without being keys."""
    tree: dict[str, Any] = msgspec.to_builtins(loaded)
    for dotted in RETIRED:
        section, _, key = dotted.partition(".")
        tree[section].pop(key, None)
    for table in (tree["engine"], *tree["endpoint"]):
        if table["api_key"]:
            table["api_key"] = "..."
    told = tree["quality"]["on_alarm"]
    if isinstance(told, str) and is_url(told):
        tree["quality"]["on_alarm"] = f"{origin(told)}/..."
    return tree


def _toml(tree: dict[str, Any]) -> str:
    sections = []
    for name, values in tree.items():
        for table in values if isinstance(values, list | tuple) else [values]:
            header = f"[[{name}]]" if isinstance(values, list | tuple) else f"[{name}]"
            sections.append("\n".join([header, *(f"{k} = {toml_value(v)}" for k, v in table.items())]))
    return "\n\n".join(sections)
