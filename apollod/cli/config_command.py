"""`apollod config check|show`, and `apollod init`, which writes a configuration."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from apollod.adapters.system.model_dir import check_model_dir
from apollod.adapters.system.web_address import is_url, origin
from apollod.cli import commands, render
from apollod.cli.render import toml_value
from apollod.core.settings import OptimizerSettings, QualitySettings, TrainerSettings
from apollod.errors import ConfigError, ModelRefused
from apollod.model.config_facts import context_length
from apollod.model.engine_memory import EngineAsked
from apollod.model.memory_plan import GB, Asked, MemoryPlan, fitting
from apollod.store.model_files import read_shapes
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
    return render.show(args, shown, _toml(shown))


def _warn(text: str) -> None:
    print(f"apollod: warning: {text}", file=sys.stderr)


def _shown(loaded: Config) -> dict[str, Any]:
    """Every value but the secrets, and those that are recorded without being keys."""
    tree: dict[str, Any] = msgspec.to_builtins(loaded)
    for dotted in RETIRED:
        section, _, key = dotted.partition(".")
        tree[section].pop(key, None)
    for table in (tree["engine"], *tree["endpoint"], *tree["environment"], *tree["weights"]["receiver"]):
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


# --- init ---------------------------------------------------------------------------------------------------------

TEMPLATE = """\
# apollod configuration. `apollod config show` prints every key with the value in force.

[state]
dir = {state}        # journal, checkpoints, quarantine, logs of the children

[model]
path = {model}        # a local Hugging Face directory with bf16 safetensors; checkpoints go into it

[engine]
host = "127.0.0.1"
port = 8000
args = ["--max-model-len", "{length}"]   # more arguments of vLLM
served_name = "apollo"
{memory}
[trainer]
lr = {lr}            # an AdamW learning rate, by the width of the model; 1e-4 for direct corrections
{trainer}

[inbox]
path = {inbox}       # drop *.jsonl here

[checkpoint]
delay_s = 600        # after the last step
every_s = 600        # while steps go on
keep = 20            # that you can go back to; each takes a part of the model's size

[quality]
every_steps = {every}     # has the model got worse? it is asked fixed questions before its first step, which takes
                     # minutes on a CPU, then after so many steps; what made it worse is taken back. 0: never

# Behaviours that shall need no instruction: practised in dreams, while nobody else uses the engine.
# [[dream.pattern]]
# name = "ask-first"
# instruction = "Ask before you delete anything."
# seeds = ["~/notes", "view:signals"]            # what situations are imagined from
# check = {{ regex = "(?i)shall i|should i" }}     # or schema, command, rubric; without one the judge decides

# Scores to learn from: prompt(number) and score(number, answer) of a Python file (docs/rewards.md).
# [[environment]]
# name = "sums"
# entry = "/path/to/sums.py"
# group = 8                                      # answers to each prompt

# Trainers of other programs (vLLM's own client, torchrl, your own loop) may write the weights (docs/control.md).
# [control]
# enabled = true
# listen = "127.0.0.1:8001"                      # these routes here alone, not on the engine's port
"""


MAX_MODEL_LEN = 32768
"""Tokens of a request, if the model has as many positions."""
RATE, WIDTH = 1e-4, 576
"""Rate at which SmolLM2-135M, of this width, learns lines of a file (docs/benchmarks/2026-11-23-lasting.md)."""


def add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", help="directory for configuration, inbox and state")
    parser.add_argument("--model", default="", help="a local Hugging Face model directory")
    parser.add_argument("--json", action="store_true", help="one JSON object: the paths that were made")
    parser.set_defaults(run=init)


def init(args: argparse.Namespace) -> int:
    """Write `apollod.toml`, the inbox and a key into a directory; never overwrites. Raises ConfigError, ModelRefused
    or, if the model does not fit this machine's GPU, DoesNotFit before anything is made."""
    root = Path(args.dir).expanduser().absolute()
    file = root / "apollod.toml"
    if file.exists():
        raise ConfigError(f"{file} exists already", "edit it, or choose another directory")
    model, lr, plan = Path("/models/your-model"), TrainerSettings().lr, None
    asked = Asked(OptimizerSettings(), engine=EngineAsked(length=MAX_MODEL_LEN))
    if args.model:
        model = Path(args.model).expanduser().absolute()
        check_model_dir(model)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        has, lr = context_length(config), rate_for(config)
        length = min(MAX_MODEL_LEN, has or MAX_MODEL_LEN)
        asked, plan = _fitting(model, replace(asked, engine=EngineAsked(length=length)))
    text = TEMPLATE.format(
        state=_path(root / "state"), inbox=_path(root / "inbox"), model=_path(model), length=asked.engine.length,
        memory=_memory_comment(plan), trainer=_trainer_lines(asked.settings),
        lr=f"{lr:.0e}".replace("e-0", "e-"), every=QualitySettings().every_steps,
    )  # fmt: skip
    (root / "inbox").mkdir(parents=True, exist_ok=True, mode=0o700)
    key = _make_key(root / "state")
    file.write_text(text, encoding="utf-8")
    render.show(args, {"config": str(file), "inbox": str(root / "inbox"), "key": str(key)}, str(file))
    next_ = "" if args.model else f"set [model] path in {file}, then: "
    print(f"{next_}apollod run --config {file}", file=sys.stderr)
    return 0


def _make_key(state: Path) -> Path:
    """Make a random key that opens our HTTP routes to processes of other users (`engine.http.callers`), readable by
    this user alone; an existing one stays."""
    state.mkdir(exist_ok=True, mode=0o700)
    path = state / "key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
    return path


def rate_for(config: Mapping[str, Any]) -> float:
    """Learning rate of files and logs for the model with this config.json: RATE at WIDTH, where it was measured, and
    less in proportion as the model is wider: Adam's rate for hidden matrices goes with 1 / width (Yang and others,
    "Tensor Programs V", arXiv:2203.03466, table 3)."""
    width = (config.get("text_config") or config).get("hidden_size")
    if not isinstance(width, int) or width <= 0:
        return TrainerSettings().lr
    return float(f"{RATE * min(1.0, WIDTH / width):.0e}")


def _fitting(model: Path, asked: Asked) -> tuple[Asked, MemoryPlan | None]:
    """Fit the settings to the GPU of this machine, if there is one and the memory of the model is known."""
    from apollod.supervisor import memory_budget  # here for start-up time

    device = memory_budget.this_device()
    if device is None or not device.gpu:
        return asked, None
    try:
        return fitting(read_shapes(model), device, asked)
    except ModelRefused as error:
        print(f"apollod: not fitted to this GPU: {error.line()}", file=sys.stderr)
        return asked, None


def _memory_comment(plan: MemoryPlan | None) -> str:
    if plan is None:
        return ""
    again = ", with layers computed again" if plan.gradient_checkpointing else ""
    return (
        f"# made for a GPU of {plan.device.bytes / GB:.1f} GB{again}: the KV cache gets what training leaves, "
        f"{plan.kv / GB:.1f} GB now\n"
    )


def _trainer_lines(settings: OptimizerSettings) -> str:
    """Lines of [trainer] in a new configuration: settings that people change first, and those unlike the default."""
    named = {"rank": settings.rank, "max_tokens": settings.max_tokens}
    default = OptimizerSettings()
    more = {key: getattr(settings, key) for key in ("moments", "layers")}
    named |= {key: value for key, value in more.items() if value != getattr(default, key)}
    return "\n".join(f"{key} = {toml_value(value)}" for key, value in named.items())


def _path(path: Path) -> str:
    """A path as TOML, which is UTF-8 text."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{str(path)!r} is not text that UTF-8 can hold", "choose another path") from error
    return toml_value(str(path))
