"""Computes the memory needs of a configuration on this machine before anything is loaded: reads the facts, asks
`model/memory_plan`."""

from pathlib import Path

import structlog

from apollod.adapters.system import hardware
from apollod.core.settings import OptimizerSettings
from apollod.errors import DoesNotFit, ModelRefused, SelectionRefused
from apollod.model.engine_memory import EngineAsked, engine_asked
from apollod.model.memory_plan import Asked, Device, MemoryPlan, UndoBudget, check_fits, memory_plan, undo_budget
from apollod.store.model_files import read_shapes
from apollod.supervisor.child_commands import cpu_kv_bytes, has_gpu
from apollod.supervisor.config import Config

log = structlog.get_logger()

_BY_HAND = "vLLM takes what it likes of a GPU: leave training its share with [engine] kv_cache_mib"
SMALL_RING = 1 << 30
"""bytes for undoing steps if the model is not known"""


def this_device() -> Device | None:
    """The GPU, else the host; None for a GPU of unknown size. Blocking."""
    if not has_gpu():
        return Device(hardware.host_bytes(), gpu=False)
    size = hardware.device_bytes()
    return None if size is None else Device(size, gpu=True)


def asked(config: Config, device: Device) -> Asked:
    """Settings that matter for memory."""
    engine = engine_asked(config.engine.args, config.engine.kv_cache_mib)
    if device.gpu and config.weights.bridge != "shared":
        engine = EngineAsked(kv=0)  # it is elsewhere; here are its weights alone, for the trainer
    elif not device.gpu:
        engine = EngineAsked(length=engine.length, kv=engine.kv or cpu_kv_bytes(config))
    return Asked(
        config.optimizer(),
        max(config.trainer.accumulate, config.schedule.accumulate),
        config.lessons.hold > 0.0,
        config.trainer.gradient_checkpointing,
        engine,
    )


def fitted(config: Config, directory: Path) -> MemoryPlan | None:
    """The memory plan for this machine; None if not known, which is logged. Raises DoesNotFit. Blocking."""
    device = this_device()
    if device is None:
        log.warning("memory.unknown", reason="nvidia-smi does not say how much memory the GPU has", hint=_BY_HAND)
        return None
    try:
        plan = check_fits(read_shapes(directory), device, asked(config, device))
    except (ModelRefused, SelectionRefused) as error:
        log.warning("memory.unknown", reason=error.line(), hint=_BY_HAND if device.gpu else "")
        return None
    log.info(
        "memory.planned",
        device=device.bytes,
        kv_cache=plan.kv,
        training=plan.table.training,
        step_tokens=plan.step_tokens,
        gradient_checkpointing=plan.gradient_checkpointing,
    )
    return plan


def refusal(config: Config) -> DoesNotFit | None:
    """The error with which `fitted` would refuse the configured model here; None: it would not."""
    device = this_device()
    if device is None:
        return None
    try:
        check_fits(read_shapes(Path(config.model.path).expanduser()), device, asked(config, device))
    except DoesNotFit as error:
        return error
    except (ModelRefused, SelectionRefused):
        return None  # the engine or the trainer reports it better
    return None


def ring(config: Config, plan: MemoryPlan | None) -> UndoBudget:
    """Memory for undoing steps, as much as is free now. Reads /proc."""
    wanted = config.checkpoint.undo_bytes
    if plan is None:
        return UndoBudget(SMALL_RING if wanted == "auto" else wanted, 0)
    return undo_budget(plan.table, wanted, hardware.host_free_bytes(), plan.device.gpu)


def alone(directory: Path, settings: OptimizerSettings, examples: int, bound: int, gpu: bool) -> MemoryPlan | None:
    """The memory plan of a trainer without an engine on this machine, for steps of at most `bound` tokens; None if not
    known. Blocking."""
    gpu = gpu and has_gpu()
    size = hardware.device_bytes() if gpu else hardware.host_bytes()
    if size is None:
        return None
    asked = Asked(settings, examples, engine=EngineAsked(kv=0), bound=bound)
    try:
        return memory_plan(read_shapes(directory), Device(size, gpu), asked)
    except (ModelRefused, SelectionRefused):
        return None


def recomputes(directory: Path, settings: OptimizerSettings, examples: int, bound: int, gpu: bool) -> bool:
    """True if a trainer without an engine has to compute layers again on this machine, which gives the same bits.
    Blocking."""
    plan = alone(directory, settings, examples, bound, gpu)
    return plan is not None and plan.gradient_checkpointing
