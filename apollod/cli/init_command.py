"""`apollod init`."""

import argparse
import json
import sys
from pathlib import Path

from apollod.adapters.system.model_dir import check_model_dir
from apollod.cli.toml_value import toml_value
from apollod.errors import ConfigError
from apollod.model.positions import context_length

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

[trainer]
lr = 1e-5            # an AdamW learning rate; 1e-4 for direct corrections
rank = 64
max_tokens = 4096

[inbox]
path = {inbox}       # drop *.jsonl here

[checkpoint]
delay_s = 600        # after the last step
every_s = 600        # while steps go on
keep = 20            # that you can go back to; each takes a part of the model's size
"""


MAX_MODEL_LEN = 32768
"""tokens of a request, where the model has as many positions"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", help="directory for configuration, inbox and state")
    parser.add_argument("--model", default="", help="a local Hugging Face model directory")
    parser.add_argument("--json", action="store_true", help="one JSON object: the paths that were made")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write `apollod.toml` and the inbox into a directory; never overwrites. Raises ConfigError or ModelRefused before
    anything is made."""
    root = Path(args.dir).expanduser().absolute()
    file = root / "apollod.toml"
    if file.exists():
        raise ConfigError(f"{file} exists already", "edit it, or choose another directory")
    model, length = Path("/models/your-model"), MAX_MODEL_LEN
    if args.model:
        model = Path(args.model).expanduser().absolute()
        check_model_dir(model)
        length = min(length, context_length(json.loads((model / "config.json").read_text(encoding="utf-8"))) or length)
    text = TEMPLATE.format(state=_path(root / "state"), inbox=_path(root / "inbox"), model=_path(model), length=length)
    (root / "inbox").mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(text, encoding="utf-8")
    print(json.dumps({"schema_version": 1, "config": str(file), "inbox": str(root / "inbox")}) if args.json else file)
    next_ = "" if args.model else f"set [model] path in {file}, then: "
    print(f"{next_}apollod run --config {file}", file=sys.stderr)
    return 0


def _path(path: Path) -> str:
    """A path as TOML, which is UTF-8 text."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{str(path)!r} is not text that UTF-8 can hold", "choose another path") from error
    return toml_value(str(path))
