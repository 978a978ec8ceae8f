"""`apollod ctl checkpoint`."""

import argparse

from apollod.cli.control import ctl
from apollod.wire import control_messages as msg


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)


def _run(args: argparse.Namespace) -> int:
    """Wait until it is committed."""
    answer = ctl.ask(ctl.socket_path(args), msg.CheckpointRequest(), ctl.CHECKPOINT_TIMEOUT_S)
    ctl.show(args, answer, f"step {answer['step']} {answer['fingerprint']} {answer['model_dir']}")
    return 0
