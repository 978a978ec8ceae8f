"""`apollod ARGUMENTS...` in a forked process that has imported it already: a hundredth of a second instead of half of
one. Commands to a daemon with vLLM and those of test_commands.py are started as people start them."""

import os
import subprocess
import tempfile
from collections.abc import Mapping

from support.fork_server import commands_server

MAIN = "import importlib, os, sys\n{before}\nsys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))"


def ran(
    *arguments: object, module: str = "apollod.cli.main", environment: Mapping[str, str] | None = None, before: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Exit code and output of `main` of that module, after the statements `before`; `environment` instead of ours.
    Raises subprocess.TimeoutExpired after two minutes."""
    command = ["-c", MAIN.format(before=before), module, *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = commands_server().start(command, os.environ if environment is None else environment, (0, out, err))
        try:
            code = child.wait(120)
        finally:
            child.kill()
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())
