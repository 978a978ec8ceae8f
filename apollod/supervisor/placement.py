"""Command lines and environments of the children: who gets which cores, and what vLLM is told."""

import glob
import os

from apollod.supervisor.config import Config

FIXED_ARGS = (
    "--load-format", "apollod", "--worker-extension-cls", "apollod.engine.worker.WorkerExtension",
    "--dtype", "bfloat16", "--tensor-parallel-size", "1",
)
CPU_ARGS = {"--enforce-eager": None, "--gpu-memory-utilization": "0.2"}  # on CPU the latter is a share of system memory


def has_gpu() -> bool:
    """Is there an NVIDIA device? APOLLOD_DEVICE=cpu says no."""
    return os.environ.get("APOLLOD_DEVICE", "") != "cpu" and bool(glob.glob("/dev/nvidia[0-9]*"))


def core_split(config: Config) -> tuple[list[int], list[int]]:
    """Cores of engine and trainer on a machine without a GPU: disjoint, since two spinning OpenMP pools on the same
    cores slow a step by an order of magnitude. With one core they share it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return cores, cores
    engine = config.engine.threads or max(1, len(cores) // 2)
    trainer = config.trainer.threads or max(1, len(cores) - engine)
    return cores[:engine], cores[-trainer:]


def engine_command(config: Config, model_dir: str) -> list[str]:
    """Arguments of vLLM's API server."""
    e = config.engine
    given = {arg.partition("=")[0] for arg in e.args}
    args = [
        "--model", model_dir, "--served-model-name", e.served_name, "--host", e.host, "--port", str(e.port), *FIXED_ARGS,
    ]
    if not has_gpu():
        for flag, value in CPU_ARGS.items():
            if flag not in given:
                args += [flag] if value is None else [flag, value]
    return args + list(e.args)


def engine_environment(config: Config) -> dict[str, str]:
    """Environment of the engine; the API key goes here and not on the command line, where anybody could read it."""
    plugins = [p for p in os.environ.get("VLLM_PLUGINS", "").split(",") if p and p != "apollod"]
    env = {
        "APOLLOD_SOCKET": str(config.socket_path),
        "VLLM_PLUGINS": ",".join(["apollod", *plugins]),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if config.engine.api_key:
        env["VLLM_API_KEY"] = config.engine.api_key
    if not has_gpu():
        cores = core_split(config)[0]
        env |= {
            "OMP_NUM_THREADS": str(len(cores)),
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_CPU_KVCACHE_SPACE": str(config.engine.kv_cache_gib),
        }
    return env


def trainer_environment(config: Config) -> dict[str, str]:
    """Environment of the trainer; a fixed thread count is part of what makes its steps exact."""
    env = {
        "APOLLOD_SOCKET": str(config.socket_path), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    if not has_gpu():
        cores = core_split(config)[1]
        threads = str(len(cores))
        env |= {"OMP_NUM_THREADS": threads, "APOLLOD_TRAINER_THREADS": threads, "APOLLOD_TRAINER_CORES": ",".join(map(str, cores))}
    return env
