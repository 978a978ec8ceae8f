"""`apollod config check|show`."""

import argparse
import json
import sys
from typing import Any

import msgspec

from apollod.adapters.journal.growth import Growth, growth
from apollod.adapters.system.web_address import is_url, origin
from apollod.cli import config_options, render
from apollod.cli.render import size
from apollod.cli.toml_value import toml_value
from apollod.errors import ApolloError, ConfigError
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.exposures import exposures


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    check = verbs.add_parser("check", help="say whether it can be used, and what it takes")
    check.add_argument(
        "--memory", action="store_true", help="what weights, optimizer and a step take in memory; nothing is loaded"
    )
    check.add_argument(
        "--device-gb", type=_gigabytes, metavar="GB", help="with --memory: of the GPU, 10^9 bytes; exit 1 if too few"
    )
    check.add_argument("--json", action="store_true", help="one JSON object")
    config_options.whole_config(check)
    check.set_defaults(run=_check)
    show = verbs.add_parser("show", help="print every value in force, as TOML")
    show.add_argument("--json", action="store_true", help="one JSON object; secrets are left out, as in the TOML form")
    config_options.whole_config(show)
    show.set_defaults(run=_show)


def _gigabytes(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _check(args: argparse.Namespace) -> int:
    """Exit code 0 when the daemon could start with it."""
    loaded = load_config(args.config, args.overrides)
    if args.memory:
        from apollod.cli import memory_report

        return memory_report.check(loaded, args.device_gb, args.json)
    if args.device_gb:
        raise ConfigError("--device-gb is of the memory table", "add --memory")
    from apollod.cli import config_problems

    refused = config_problems.refusal(loaded)
    if refused:
        print(f"apollod: {refused.line()}", file=sys.stderr)
    paths = {
        "model": loaded.model.path,
        "state": str(loaded.state_dir),
        "inbox": str(loaded.inbox_dir),
        "url": loaded.url,
    }
    grown, warnings = _growth(loaded), exposures(loaded)
    history, free, limit = 0, 0, 0
    if not refused:
        history, free = config_problems.history_bytes(loaded), config_problems.free_bytes(loaded)
        limit = config_problems.keep_bytes(loaded)
    if args.json:
        error = refused.line() if refused else ""
        disk = {"history_bytes": history, "free_bytes": free, "keep_bytes": limit}
        products = config_problems.products(loaded)
        answer = {"schema_version": 1, "ok": not refused, "error": error, **paths, **disk, "products": products}
        print(json.dumps(answer | {"warnings": warnings, "growth": grown._asdict() if grown else None}))
    elif not refused:
        for warning in warnings:
            print(f"warning: {warning}")
        if grown:
            print(f"the state directory grows: {render.growth_text(*grown)}")
        print(f"ok: model {paths['model']}, state {paths['state']}, inbox {paths['inbox']}, {paths['url']}")
        kept = f"at most {loaded.checkpoint.keep}" if history == limit else str(loaded.checkpoint.keep)
        least = f"; the oldest go first above {size(limit)}" if limit else ""
        print(f"history: {kept} checkpoints take about {size(history)}, {size(free)} of disk are free{least}")
        if config_problems.products(loaded) == "float32":
            print(f"products: {render.FLOAT32_PRODUCTS}")
    return 1 if refused else 0


def _show(args: argparse.Namespace) -> int:
    shown = _shown(load_config(args.config, args.overrides))
    print(json.dumps({"schema_version": 1, **shown}) if args.json else _toml(shown))
    return 0


def _growth(loaded: Config) -> Growth | None:
    """Growth of the state directory, if there is a journal that tells; what is wrong with one the daemon says."""
    try:
        return growth(loaded.journal_path) if loaded.journal_path.exists() else None
    except (ApolloError, OSError):
        return None


def _shown(loaded: Config) -> dict[str, Any]:
    """Every value but the secrets."""
    tree: dict[str, Any] = msgspec.to_builtins(loaded)
    for section in tree.values():
        if isinstance(section, dict) and section.get("api_key"):
            section["api_key"] = "..."
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
