"""`apollod ctl resume`."""

import argparse

from apollod.cli.control import ctl
from apollod.wire import control_messages as msg
from apollod.wire import status as st


def add(parser: argparse.ArgumentParser) -> None:
    ctl.options(parser, _run)


def _run(args: argparse.Namespace) -> int:
    answer = ctl.ask(ctl.socket_path(args), msg.ResumeRequest())
    ctl.show(args, answer, st.read(answer).state)
    return 0
