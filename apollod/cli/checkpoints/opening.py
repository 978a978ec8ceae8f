"""The history of checkpoints that a command means, and the step in it."""

import argparse
import os
from pathlib import Path

from apollod.cli.checkpoints.open_history import open_history
from apollod.errors import CheckpointError, ConfigError
from apollod.permission import check_permitted
from apollod.store.history import History, Point


def opened(args: argparse.Namespace, wait_s: float) -> History:
    """The history, if need be after a sync that is at work. Raises ConfigError, NotPermitted or CheckpointError."""
    checkpoints, model_dir, base = _places(args)
    if not model_dir.is_dir():
        raise CheckpointError(f"{model_dir} is no directory", "name the model directory with --model DIR")
    return open_history(checkpoints, model_dir, base, wait_s)


def _places(args: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Directory of the checkpoints, model directory, kept base: what of them is there may be read."""
    checkpoints, model_dir = args.checkpoints, args.model
    if checkpoints is None or model_dir is None:
        if not args.config:
            raise ConfigError(
                "which checkpoints?", "give --config FILE, or --checkpoints DIR and --model DIR, or set APOLLOD_CONFIG"
            )
        from apollod.supervisor.config import load_config

        config = load_config(args.config)
        checkpoints = checkpoints or config.state_dir / "checkpoints"
        model_dir = model_dir or Path(config.model.path)
    model_dir = model_dir.expanduser().absolute()
    base = args.base or checkpoints.absolute().parent / "base" / model_dir.name
    for place in (checkpoints, model_dir, base):
        check_permitted(place, os.R_OK | os.X_OK)
    if args.checkpoints and args.model and not checkpoints.is_dir():
        raise CheckpointError(f"{checkpoints} is no directory", "name the directory that holds the checkpoints")
    return checkpoints, model_dir, base


def point_of(history: History, text: str) -> Point:
    """A step by its number, or the newest checkpoint as `latest`."""
    if text == "latest":
        if not history.held:
            raise CheckpointError(
                f"there is no checkpoint in {history.checkpoints}", "`apollod ctl checkpoint` writes one"
            )
        return history.point(history.held[-1].entry)
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is no step", "give a step's number, or latest")
    return history.at_step(int(text))
