"""`apollod ctl rollback`."""

import argparse
import re
from typing import Any

from apollod.cli import commands
from apollod.cli.control import ctl
from apollod.errors import ConfigError
from apollod.wire import control_messages as msg


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)
    parser.add_argument(
        "--to",
        required=True,
        metavar="STEP|CHECKPOINT",
        help="a step on the way to the one that is served, 0 for the untrained weights, or a checkpoint's directory",
    )


def _run(args: argparse.Namespace) -> int:
    """Wait until the weights of that step are served."""
    answer = ctl.ask(ctl.socket_path(args), msg.RollbackRequest(_step_of(args.to)), ctl.CHECKPOINT_TIMEOUT_S)
    ctl.show(args, answer, _text(answer))
    return 0


def _step_of(text: str) -> int:
    """A step, or the step of a checkpoint that is named by its directory (the last part is enough)."""
    found = re.fullmatch(r"(?:.*/)?(?:step-)?([0-9]{1,19})(?:-[0-9]+)?/?", text)
    if found is None or int(found[1]) > commands.COUNT_MAX:
        raise ConfigError(
            f"{text!r} is neither a step nor a checkpoint",
            "give a number, or a path such as .../checkpoints/step-00000012",
        )
    return int(found[1])


def _text(done: dict[str, Any]) -> str:
    restored = f"restored from a checkpoint, {done['replayed']} steps run again"
    how = "undone in memory" if done["how"] == "memory" else restored
    return (
        f"step {done['step']} {done['fingerprint']} is served: {len(done['undone'])} steps {how} in "
        f"{done['seconds']:.2f} s\n"
        f"{len(done['examples'])} examples are taken back and not learned again; `apollod ctl relearn ID...` asks "
        "for them"
    )
