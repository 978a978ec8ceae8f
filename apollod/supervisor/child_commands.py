"""Command lines and environments of the children: the split of cores, and vLLM's arguments."""

import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from apollod import failpoints
from apollod.adapters.system import semaphores
from apollod.core.kernel.composing import composed
from apollod.model.engine_memory import engine_asked
from apollod.supervisor.config import Config
from apollod.wire.engine_terms import CAPTURE_VARIABLE, RECEIVERS_VARIABLE, CaptureTerms, ReceiverTerms, SendTerms

CUDA_HOME = "/usr/local/cuda"
"""default directory of a CUDA toolkit"""
ENGINE_MODULE = "APOLLOD_ENGINE_MODULE"
"""Environment variable: the Python module that is started as the engine, in place of ours. Anything that takes the same
arguments and speaks the same messages may serve (docs/architecture.md, "Another engine")."""

FIXED_ARGS = (
    "--load-format", "apollod", "--worker-extension-cls", "apollod.engine.worker.WorkerExtension", "--dtype",
    "bfloat16", "--tensor-parallel-size", "1",
)  # fmt: skip
URL_KEYS = "apollod.engine.http.url_keys.UrlKeys"
NO_WEIGHT_ROUTES = {"VLLM_SERVER_DEV_MODE": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "0"}
"""vLLM's own routes for weights allocate parameters anew (model_executor/model_loader/reload), so the trainer would
write to memory that was freed; others free or zero them, or unpickle what a caller sends. All come with the first
variable, and without a key (entrypoints/launchers/api_server/routers.py)."""
CPU_KV_MIB = 512
ONE_PROCESS = ("--distributed-executor-backend", "uni")
ONE_PROCESS_ENV = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""On CPU vLLM's default is a worker process behind a queue in /dev/shm: one more process, 5 s longer to start, slower,
and the queue's files are left behind when it is killed (measured with 0.32). Inside the engine core this is avoided,
but then vLLM refuses to bind threads (platforms/cpu.py): the trainer is bound to its cores instead."""


def has_gpu() -> bool:
    """True if there is an NVIDIA device. APOLLOD_DEVICE=cpu hides it."""
    return os.environ.get("APOLLOD_DEVICE", "") != "cpu" and bool(glob.glob("/dev/nvidia[0-9]*"))


def kernels_refused(config: Config) -> str:
    """Reason why the trainer will refuse `[trainer] kernels`, as far as known without torch; empty: none."""
    if config.trainer.kernels != "triton":
        return ""
    if not has_gpu():
        return 'kernels = "triton" needs an NVIDIA GPU, and there is none; set [trainer] kernels = "auto"'
    if find_spec("triton") is None:
        way_out = 'run `pip install triton`, or set [trainer] kernels = "auto"'
        return f'kernels = "triton", and Triton is not installed; {way_out}'
    return ""


def core_split(config: Config) -> tuple[list[int], list[int]]:
    """Cores of engine and trainer on a machine without a GPU: disjoint, since two OpenMP pools that spin on the same
    cores make a step ten times slower. If there is only one core, they share it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return cores, cores
    engine = config.engine.threads or max(1, len(cores) // 2)
    trainer = config.trainer.threads or max(1, len(cores) - engine)
    return cores[:engine], cores[-trainer:]


def engine_module(config: Config) -> str:
    """Module that `python -m` runs as the engine."""
    ours = "apollod.engine" if config.weights.bridge == "shared" else "apollod.engine.gateway"
    return os.environ.get(ENGINE_MODULE) or ours


def cpu_kv_bytes(config: Config) -> int:
    """Size of the KV cache without a GPU."""
    return (config.engine.kv_cache_mib or CPU_KV_MIB) << 20


def engine_command(config: Config, model_dir: str, kv_bytes: int | None) -> list[str]:
    """Arguments of vLLM's API server. `kv_bytes`: size of the KV cache on a GPU, unless `[engine]` sets one; None: not
    known."""
    e = config.engine
    args = [
        "--model",
        model_dir,
        "--served-model-name",
        e.served_name,
        "--host",
        e.host,
        "--port",
        str(e.port),
        *FIXED_ARGS,
    ]
    if not has_gpu():
        args += ["--enforce-eager", "--kv-cache-memory-bytes", str(cpu_kv_bytes(config)), *ONE_PROCESS]
    elif (size := e.kv_cache_mib << 20 or kv_bytes) and not engine_asked(e.args).sized:
        args += ["--kv-cache-memory-bytes", str(size)]
    if config.control.enabled:
        args += ["--middleware", URL_KEYS]
    if sets_priority(config):
        args += ["--scheduling-policy", "priority"]
    return args + list(e.args)


def sets_priority(config: Config) -> bool:
    """True if our own engine judges, dreams, answers probes or samples rollouts, and has to serve all other requests
    first. Requests without a priority have 0, and equals are served in the order of arrival, as without priorities."""
    judges = config.judge.mode != "off" and not config.judge.endpoint
    asks = judges or bool(config.dream.pattern) or config.quality.every_steps > 0 or bool(config.environment)
    return asks and asked_policy(config) is None


def priority_at(config: Config, own: int) -> int | None:
    """This priority, where our own engine accepts priorities; else None: one without this policy refuses them."""
    return own if sets_priority(config) or asked_policy(config) == "priority" else None


def asked_policy(config: Config) -> str | None:
    """Scheduling policy in `[engine] args`; None: not given."""
    args = config.engine.args
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == "--scheduling-policy":
            return value if equals else "".join(args[place + 1 : place + 2])
    return None


def engine_tmp_dir(config: Config) -> Path:
    """Directory for sockets of the engine's processes (vLLM, zmq). The path is short, since socket paths are limited,
    and the same in every life of this daemon. Emptied before and after each engine: a killed one leaves files
    behind."""
    name = hashlib.blake2b(os.fsencode(config.state_dir), digest_size=6).hexdigest()
    return Path(tempfile.gettempdir()) / f"apollod-{os.getuid()}-{name}"


def semaphore_prefix(config: Config) -> str:
    """Prefix of the names of the engine's semaphores: unique for this state directory, even among containers with the
    same path, and the same in every life of this daemon."""
    found = os.stat(config.state_dir)
    identity = f"{config.state_dir}\0{found.st_dev}\0{found.st_ino}"
    return f"apollod-{hashlib.blake2b(os.fsencode(identity), digest_size=6).hexdigest()}"


def engine_environment(config: Config) -> dict[str, str]:
    """Environment of the engine; the API key goes here, not on the command line, which every user can read."""
    plugins = [p for p in os.environ.get("VLLM_PLUGINS", "").split(",") if p and p != "apollod"]
    env = {
        "APOLLOD_SOCKET": str(config.socket_path),
        "APOLLOD_KEY_FILE": str(config.key_path),
        "VLLM_PLUGINS": ",".join(["apollod", *plugins]),
        "VLLM_NO_USAGE_STATS": "1",
        **NO_WEIGHT_ROUTES,
        "TMPDIR": str(engine_tmp_dir(config)),
        semaphores.VARIABLE: semaphore_prefix(config),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **cache_environment(config),
        **sampler_environment(),
        **failpoints.environment_of("engine"),
    }
    if config.engine.names:
        env["APOLLOD_HTTP_NAMES"] = ",".join(config.engine.names)
    if config.control.enabled:
        env["APOLLOD_CONTROL"] = "1"
        env["APOLLOD_CONTROL_PAUSE_S"] = str(config.control.pause_s)
        env["APOLLOD_CONTROL_ADDRESSES"] = ",".join(config.control.addresses)
        env["APOLLOD_CONTROL_LISTEN"] = config.control.listen
    if config.capture.mode != "off":
        capture = CaptureTerms(
            str(config.capture_path), config.capture.max_bytes, config.capture.keep_s, config.redaction.personal
        )
        env[CAPTURE_VARIABLE] = msgspec.json.encode(capture).decode()
    if (bridge := config.weights.bridge) != "shared":
        receivers = tuple(composed(ReceiverTerms, one) for one in config.weights.receiver)
        w = config.weights
        terms = SendTerms(
            bridge,
            receivers,
            str(config.sent_dir),
            w.command,
            w.timeout_s,
            w.rank,
            w.base,
            str(config.base_dir),
            gpu=has_gpu(),
        )
        env[RECEIVERS_VARIABLE] = msgspec.json.encode(terms).decode()
    if config.engine.api_key:
        env["VLLM_API_KEY"] = config.engine.api_key
    if not has_gpu():
        cores = core_split(config)[0]
        env |= {
            "OMP_NUM_THREADS": str(len(cores)),
            # Eager or not, vLLM compiles the function that ranks log-probabilities (v1/sample/ops/logprobs.py) at the
            # first request that asks for some: with the C++ compiler, while all requests wait (30 s measured on a busy
            # machine).
            "TORCHDYNAMO_DISABLE": "1",
            **ONE_PROCESS_ENV,
        }
    return env


def cache_environment(config: Config, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Directories for compiled code of vLLM, FlashInfer and Triton, unless the user has set them. Their default is in
    the home, which a hardened service may not write: then it is the cache directory of the service manager, or `cache`
    in the state directory."""
    ours = Path(environ.get("CACHE_DIRECTORY", "").split(":")[0] or config.state_dir / "cache")
    wanted = {"TRITON_CACHE_DIR": str(ours / "triton")} if has_gpu() else {}
    if "CACHE_DIRECTORY" in environ or not _may_cache(environ):
        wanted |= {"VLLM_CACHE_ROOT": str(ours / "vllm"), "FLASHINFER_WORKSPACE_BASE": str(ours / "flashinfer")}
    return {name: path for name, path in wanted.items() if name not in environ}


def sampler_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """On a GPU without nvcc: vLLM samples by its own kernels, unless the user has set it. FlashInfer compiles its
    sampler at the first start, and vLLM 0.26 exits without a compiler; 0.32 looks for one in these places
    (vllm/utils/flashinfer.py, `_flashinfer_nvcc_path`)."""
    name = "VLLM_USE_FLASHINFER_SAMPLER"
    homes = [environ[one] for one in ("CUDA_HOME", "CUDA_PATH") if environ.get(one)]
    places = [Path(home) / "bin" / "nvcc" for home in (*homes, CUDA_HOME)]
    compiler = shutil.which("nvcc", path=environ.get("PATH")) or any(os.access(one, os.X_OK) for one in places)
    return {} if not has_gpu() or name in environ or compiler else {name: "0"}


def _may_cache(environ: Mapping[str, str]) -> bool:
    """True if we may write to vLLM's default cache (vllm/envs.py)."""
    home = Path(environ.get("HOME") or "/nonexistent")
    default = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "vllm"
    # `exists` is also false without permission to look
    there = next(place for place in (default, *default.parents) if os.path.exists(place))
    return os.access(there, os.W_OK, effective_ids=True)


def trainer_environment(config: Config) -> dict[str, str]:
    """Environment of the trainer; a fixed thread count is part of what makes its steps exact."""
    env = {
        "APOLLOD_SOCKET": str(config.socket_path),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        **failpoints.environment_of("trainer"),
    }
    env |= {name: path for name, path in cache_environment(config).items() if name == "TRITON_CACHE_DIR"}
    if not has_gpu():
        cores = core_split(config)[1]
        threads = str(len(cores))
        env |= {
            "OMP_NUM_THREADS": threads,
            "APOLLOD_TRAINER_THREADS": threads,
            "APOLLOD_TRAINER_CORES": ",".join(map(str, cores)),
        }
    return env


def replays_environment(config: Config) -> dict[str, str]:
    """Environment of the process that replays windows: on the trainer's cores, which rest meanwhile."""
    env = {name: value for name, value in trainer_environment(config).items() if name != "APOLLOD_SOCKET"}
    return env | failpoints.environment_of("search")
