"""`python -m apollod.engine ARGS...`: the engine child. ARGS are those of vLLM's API server.

From the environment: APOLLOD_SOCKET, the supervisor's socket; APOLLOD_PARENT_PID, so that it dies with the supervisor;
VLLM_PLUGINS, which has to name `apollod`.
"""

import importlib
import importlib.util
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apollod import foreign_wheels
from apollod.adapters.ipc.channel import Link
from apollod.adapters.system import semaphores
from apollod.adapters.system.own_process import die_with_supervisor
from apollod.engine import refusals
from apollod.errors import ApolloError, ConfigError, ModelRefused
from apollod.wire.engine_terms import CaptureTerms, capture_terms
from apollod.wire.messages import Hello, LoadRefused

EXIT_REFUSED = 2


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM. Returns 2 if the model or the settings are refused (the supervisor is told)."""
    die_with_supervisor()
    try:
        socket_path = _socket_path()
        foreign_wheels.guard()
        _prepare_children()
        args = _parse(arguments)
        try:
            refusals.check_arguments(args)
            refusals.choose_backends(args)
        except ModelRefused as refused:
            link = Link.connect(socket_path)
            link.send(Hello("engine-worker", os.getpid()))  # in place of the loader, which will not start
            link.send(LoadRefused(str(refused), refused.hint))
            link.close()
            raise
    except ApolloError as error:
        sys.stderr.write(f"apollod.engine: {error.line()}\n")
        return EXIT_REFUSED
    _serve(args)
    return 0


def _socket_path() -> str:
    """The supervisor's socket; raises ConfigError if vLLM would not load our plugin or the socket is not set."""
    if "apollod" not in os.environ.get("VLLM_PLUGINS", "").split(","):
        raise ConfigError("VLLM_PLUGINS does not name apollod", "start the engine with `apollod run`")
    path = os.environ.get("APOLLOD_SOCKET")
    if not path:
        raise ConfigError("APOLLOD_SOCKET is not set", "start the engine with `apollod run`")
    return path


def _prepare_children() -> None:
    """Make every Python child process run `site/sitecustomize.py`, and name semaphores as ours."""
    semaphores.name_ours()
    site = str(Path(__file__).parent / "site")
    rest = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{site}{os.pathsep}{rest}" if rest else site
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # a forked child (vLLM's default on CUDA) would not run site/


def _parse(arguments: Sequence[str]) -> Namespace:
    """vLLM's own command line. Source: `main` of vllm/entrypoints/launchers/api_server/entry.py."""
    from vllm import logger as vllm_logger
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cli = _module("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
    cli_env_setup()  # type: ignore[no-untyped-call]
    parser = FlexibleArgumentParser(prog="apollod.engine")  # type: ignore[no-untyped-call]
    args: Namespace = cli.make_arg_parser(parser).parse_args(list(arguments))
    if hasattr(vllm_logger, "configure_logging_from_args"):  # vLLM 0.32; 0.26 has no logging options
        vllm_logger.configure_logging_from_args(args)
    cli.validate_parsed_serve_args(args)
    return args


def _serve(args: Namespace) -> None:
    import uvloop

    server = _module("vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.openai.api_server")
    uvloop.run(_run(server, args))


async def _run(server: Any, args: Namespace) -> None:
    """vLLM's `run_server` without its handler for a SIGTERM during the start.

    That raises KeyboardInterrupt, which `zmq_socket_ctx` (utils/network_utils.py) swallows in 0.26 and 0.32: the start
    then waits ten minutes for an engine core that is gone. By default the signal ends this process, and with it the
    children. Once the server is up vLLM handles it (launcher.py, `serve_http`).
    """
    from vllm.utils.system_utils import decorate_logs

    decorate_logs("APIServer", skip_if_decorated=True)
    address, sock = server.setup_server(args, reuse_port=False)
    wanted = capture_terms()
    if wanted is None:
        await server.run_server_worker(address, sock, args)
    else:
        await _serve_and_keep(server, args, address, sock, wanted)


async def _serve_and_keep(server: Any, args: Namespace, address: str, sock: Any, wanted: CaptureTerms) -> None:
    """vLLM's `run_server_worker` with a client of ours between its handlers and its engine. (The plugins of parsers
    were imported by `setup_server`.)"""
    from apollod.engine.capture import CapturingClient, started

    async with server.build_async_engine_client(args) as client:
        kept = started(wanted, client)
        if kept is not None:
            client = CapturingClient(client, kept.keep, kept.settle)
        stopped = await server.build_and_serve(client, address, sock, args)
    try:
        await stopped
    finally:
        sock.close()
        if kept is not None:
            kept.close()


def _module(name: str, older: str) -> Any:
    """Module `name` of vLLM 0.32, or its counterpart `older` in 0.26."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a parent package is missing
        found = None
    return importlib.import_module(older if found is None else name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
