"""Entry of the trainer process: `python -m apollod.trainer`, started by the supervisor; with `--offline` by `apollod
replay`, on memory of its own instead of the engine's.

Environment: APOLLOD_SOCKET (the supervisor's socket), APOLLOD_PARENT_PID (die with it), APOLLOD_TRAINER_THREADS,
APOLLOD_TRAINER_CORES.
"""

import os
import signal
import sys
from importlib.metadata import version

from apollod import foreign_wheels
from apollod.adapters.ipc.channel import Link
from apollod.adapters.system.own_process import die_with_supervisor
from apollod.errors import ApolloError
from apollod.trainer import memory
from apollod.wire.messages import Hello

NICE = 5  # on CPU: a third of an engine thread's share of a contended core


def main() -> int:
    """Say hello, do the heavy imports, serve. Exit codes: `Loop.run`; 1 for errors that only stderr can report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it goes to the whole group; the supervisor decides
    die_with_supervisor()
    if cores := os.environ.get("APOLLOD_TRAINER_CORES"):
        os.sched_setaffinity(0, map(int, cores.split(",")))  # the engine has the others to itself
        os.nice(NICE)  # the engine goes first on these, too: requests are urgent, steps are not
    threads = os.environ.get("APOLLOD_TRAINER_THREADS", "1")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = threads
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without it cuBLAS has no deterministic matrix product
    try:
        link = Link.connect(os.environ["APOLLOD_SOCKET"])
        versions = {name: version(name) for name in ("torch", "transformers", "safetensors")}
        link.send(Hello(role="trainer", pid=os.getpid(), versions=versions))  # before the imports, which take seconds
        return _serve(link, int(threads))
    except ApolloError as error:
        sys.stderr.write(f"apollod trainer: {error.line()}\n")
        return 1


def _serve(link: Link, threads: int) -> int:
    memory.keep_pages()
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    foreign_wheels.guard()
    from apollod.trainer.offline import Loop, OfflineLoop

    return (OfflineLoop if "--offline" in sys.argv[1:] else Loop)(link).run()


if __name__ == "__main__":
    sys.exit(main())
