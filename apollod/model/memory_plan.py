"""Plans one device's memory among weights, training and the KV cache, and suggests changes if they do not fit. Pure.

Weights and optimizer state are exact; the further memory of a step is known to a tenth (memory_table.py), so a tenth
more of it is reserved, and on a GPU SLACK (engine_memory.py) for unavoidable overhead of CUDA, torch and cuBLAS. The
rest is the KV cache, unless its size is configured. Also the host memory of the undo ring, and the room for a search
for culprits beside the daemon.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import msgspec

from apollod.core.facts.training import bounds
from apollod.core.settings import OptimizerSettings, Recompute
from apollod.errors import DoesNotFit
from apollod.model import engine_memory
from apollod.model.engine_memory import EngineAsked
from apollod.model.memory_table import MemoryTable, bounded_table, copied_bytes
from apollod.model.shapes import ModelShapes, layer_types

GB = 1e9
MIB = 1 << 20
CPU_ENGINE, CPU_TRAINER = 1_500_000_000, 800_000_000
"""Python, torch and their libraries in a process, on a machine without a GPU"""
UNDO_COPIES = 3
"""matrices that wait on a GPU for their transfer to the host (trainer/undo/undo_ring.py)"""
WAYS = 3
TOKENS_LEAST, LAYERS_LEAST = 256, 1 / 8
"""least useful values of a suggestion: tokens of an example, and share of the layers"""


@dataclass(frozen=True)
class Device:
    """`bytes` of a GPU's memory, or of the host's without a GPU."""

    bytes: int
    gpu: bool


@dataclass(frozen=True)
class Asked:
    """The settings that memory depends on. `holds`: steps hold anchors; `bound`: most tokens of the existing steps; 0:
    as many as fit."""

    settings: OptimizerSettings
    accumulate: int = 1
    holds: bool = True
    gradient_checkpointing: Recompute = "auto"
    engine: EngineAsked = field(default_factory=EngineAsked)
    bound: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes. `engine`, `trainer`: besides weights, KV cache and `table.training`. `kv`: size of the KV cache, at least
    `kv_least`, one request of full length; with `kv_given` it is configured. `slack`: reserved. `step_tokens`: most
    tokens of a step with its anchors (core/facts/training.py); `table` is for the step of at most so many that takes
    the most memory."""

    device: Device
    table: MemoryTable
    step_tokens: int
    gradient_checkpointing: bool
    engine: int
    trainer: int
    kv: int
    kv_least: int
    kv_given: bool
    slack: int

    @property
    def taken(self) -> int:
        """Memory of everything but the KV cache."""
        return self.table.weights + self.table.training + self.engine + self.trainer + self.slack

    @property
    def missing(self) -> int:
        """The bytes that the device lacks; 0 if everything fits."""
        kv = self.kv if self.kv_given else max(self.kv, self.kv_least)
        return max(0, self.taken + kv - self.device.bytes)


def memory_plan(model: ModelShapes, device: Device, asked: Asked) -> MemoryPlan:
    """The plan for a device. If it is left to us ("auto"), layers are recomputed only if the step would not fit
    otherwise. If that is not enough, steps may have fewer tokens, though never fewer than one example. Raises like
    `memory_table`."""
    given = (asked.bound, asked.bound) if asked.bound else ()
    wished, *fewer = given or bounds(asked.settings.max_tokens, asked.holds)
    if asked.gradient_checkpointing == "auto":
        kept = _plan(model, device, asked, False, wished)
        if not kept.missing:
            return kept
    again = asked.gradient_checkpointing is not False
    plan, least = (_plan(model, device, asked, again, bound) for bound in (wished, fewer.pop()))
    if not plan.missing or least.missing:
        return least if plan.missing else plan
    between = (_plan(model, device, asked, again, bound) for bound in fewer)
    return next((one for one in between if not one.missing), least)


def _plan(model: ModelShapes, device: Device, asked: Asked, again: bool, bound: int) -> MemoryPlan:
    """The plan for steps of at most `bound` tokens."""
    table = bounded_table(model, asked.settings, asked.accumulate, again, bound, asked.holds)
    doubt = (table.training - table.state_total) // 10
    engine, trainer, slack = CPU_ENGINE, CPU_TRAINER + doubt, 0
    if device.gpu:
        engine = engine_memory.workspace(model.text, asked.engine, device.bytes)
        trainer = engine_memory.CUDA_CONTEXT + doubt + UNDO_COPIES * table.largest
        slack = engine_memory.SLACK
    least = (table.kv_token or 0) * (asked.engine.length or 0) + table.kv_sequence
    kv, given = asked.engine.kv, True
    if kv is None and asked.engine.share is not None:
        kv = max(0, int(asked.engine.share * device.bytes) - table.weights - engine)
    if kv is None:
        kv, given = 0, False
    plan = MemoryPlan(device, table, bound, again, engine, trainer, kv, least, given, slack)
    return plan if given else replace(plan, kv=max(0, (device.bytes - plan.taken) // MIB * MIB))


# --- shortages ----------------------------------------------------------------------------------------------------


def check_fits(model: ModelShapes, device: Device, asked: Asked) -> MemoryPlan:
    """The plan; raises DoesNotFit with figures and the cheapest ways out."""
    plan = memory_plan(model, device, asked)
    if plan.missing:
        raise DoesNotFit(shortage(plan), ways_out(model, device, asked))
    return plan


def shortage(plan: MemoryPlan) -> str:
    """The figures in one sentence."""
    what = "GPU" if plan.device.gpu else "machine"
    again = ", layers computed again" if plan.gradient_checkpointing else ""
    kv = plan.kv if plan.kv_given else plan.kv_least
    return (
        f"model and training do not fit this {what} of {_gb(plan.device.bytes)}, {_gb(plan.missing)} are missing: "
        f"weights {_gb(plan.table.weights)}, a step at max_tokens {_gb(plan.table.training)}{again}, "
        f"KV cache {_gb(kv)}, the processes {_gb(plan.engine + plan.trainer + plan.slack)}"
    )


def ways_out(model: ModelShapes, device: Device, asked: Asked) -> str:
    """The changes to suggest, the three with the least cost for serving and learning; if none is enough alone, together
    with those that cost only time."""
    found = _enough(model, device, asked)
    free, thrifty = _free(asked), asked
    for _, change in free:
        thrifty = change(thrifty)
    least, together = memory_plan(model, device, thrifty), " and ".join(text for text, _ in free)
    if least.missing and free:
        found += [f"{together} and {text}" for text in _enough(model, device, thrifty)]
    elif len(free) > 1 and not {text for text, _ in free} & set(found):
        found.insert(0, together)
    return "; or ".join(found[:WAYS]) or f"use a smaller model, or {_gb(device.bytes + least.missing)} of memory"


def _enough(model: ModelShapes, device: Device, asked: Asked) -> list[str]:
    """Single changes that are sufficient."""
    return [text for text, way in _ways(model, device, asked) if not memory_plan(model, device, way).missing]


_Way = tuple[str, Asked]


def _free(asked: Asked) -> list[tuple[str, Callable[[Asked], Asked]]]:
    """Changes that cost time at most."""
    ways: list[tuple[str, Callable[[Asked], Asked]]] = []
    if asked.gradient_checkpointing is False:
        again = partial(replace, gradient_checkpointing=True)
        ways.append(("set [trainer] gradient_checkpointing = true", again))
    if asked.accumulate > 1:
        ways.append(("set [trainer] accumulate = 1", partial(replace, accumulate=1)))
    if asked.settings.rounding == "master":
        ways.append(('set [trainer] rounding = "stochastic"', partial(_with, rounding="stochastic")))
    return ways


def _ways(model: ModelShapes, device: Device, asked: Asked) -> Iterator[_Way]:
    """One change each, sufficient or not, the cheapest first."""
    for text, change in _free(asked):
        yield text, change(asked)
    yield from _smaller_cache(model, device, asked)
    settings = asked.settings
    tokens = _largest(model, device, settings.max_tokens // 128, lambda n: _with(asked, max_tokens=128 * n))
    if tokens >= TOKENS_LEAST // 128:
        yield f"lower [trainer] max_tokens to {128 * tokens}", _with(asked, max_tokens=128 * tokens)
    if settings.name in ("apollo", "adamw") and settings.moments == "float32":
        yield 'set [trainer] moments = "bfloat16"', _with(asked, moments="bfloat16")
    if settings.name != "apollo":
        yield 'set [trainer] optimizer = "apollo"', _with(asked, name="apollo")
    elif rank := _largest(model, device, settings.rank // 8, lambda n: _with(asked, rank=8 * n)):
        yield f"lower [trainer] rank to {8 * rank}", _with(asked, rank=8 * rank)
    count = len(layer_types(model.text))
    top = _largest(model, device, count, lambda n: _with(asked, layers=f"{count - n}-{count - 1}"))
    if top >= count * LAYERS_LEAST and not settings.layers:
        text = f"{count - top}-{count - 1}"
        yield f'train fewer layers, [trainer] layers = "{text}"', _with(asked, layers=text)


def _smaller_cache(model: ModelShapes, device: Device, asked: Asked) -> Iterator[_Way]:
    """A smaller KV cache, or a smaller share of it for one request."""
    plan, engine = memory_plan(model, device, asked), asked.engine
    left = (plan.kv - plan.missing) // MIB * MIB
    if plan.kv_given and left >= max(plan.kv_least, MIB):
        way = replace(asked, engine=replace(engine, kv=left, share=None))
        if engine.share is None:
            where = "--kv-cache-memory-bytes in [engine] args" if engine.sized else "[engine] kv_cache_mib"
            yield f"lower {where} to {left if engine.sized else left // MIB}", way
        else:
            yield (
                "leave --gpu-memory-utilization out of [engine] args",
                replace(asked, engine=replace(engine, share=None, sized=False)),
            )
    elif not plan.kv_given and engine.length:
        thousands = engine.length // 1024

        def shorter(n: int) -> Asked:
            return replace(asked, engine=replace(engine, length=1024 * n))

        if length := _largest(model, device, thousands, shorter):
            yield f"lower --max-model-len in [engine] args to {1024 * length}", shorter(length)


def _largest(model: ModelShapes, device: Device, above: int, way: Callable[[int], Asked]) -> int:
    """The largest n >= 1, below `above`, that fits; 0 if none does."""
    low, high = 0, above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if not memory_plan(model, device, way(middle)).missing else (low, middle)
    return low


def _with(asked: Asked, **changes: object) -> Asked:
    return replace(asked, settings=msgspec.structs.replace(asked.settings, **changes))


def _gb(count: int) -> str:
    return f"{count / GB:.1f} GB"


# --- values for a new configuration -------------------------------------------------------------------------------


def fitting(model: ModelShapes, device: Device, asked: Asked) -> tuple[Asked, MemoryPlan]:
    """The settings closest to `asked` that fit: the first sufficient way out. Raises DoesNotFit if there is none."""
    plan = memory_plan(model, device, asked)
    if not plan.missing:
        return asked, plan
    for _, way in _ways(model, device, asked):
        if not (found := memory_plan(model, device, way)).missing:
            return way, found
    raise DoesNotFit(shortage(plan), ways_out(model, device, asked))


# --- the undo ring, in host memory --------------------------------------------------------------------------------
#
# A step in the ring has undo data for every weight that it wrote and a copy of the optimizer's state. The undo data
# takes two bits per 16-bit weight and 16 more where the weight moved by more than one ulp: measured as 0.08 to 0.16 of
# the weights at a learning rate of 1e-5, and up to 0.4 at the 1e-4 of direct corrections
# (docs/benchmarks/2026-11-22-memory.md).

PACKED_SHARE = 1 / 6
DIRECT = 2.4
"""size of a direct correction in ordinary steps; a ring too small for one gives up for good"""
STEPS = 6
"""steps worth their memory, even if each is a direct correction: further back, a checkpoint is near"""
LEAST = 1 << 30
"""least bytes of a budget, even if that is many more steps"""

UndoBytes = int | Literal["auto"]


@dataclass(frozen=True)
class UndoBudget:
    """`bytes` for the ring, `step` for one step. `refused`: reason for 0 bytes, if that was not configured."""

    bytes: int
    step: int
    refused: str = ""

    @property
    def steps(self) -> int:
        """Approximate number of steps that can be undone in memory."""
        return self.bytes // self.step if self.step else 0


def undo_budget(table: MemoryTable, wanted: UndoBytes, host_free: int, gpu: bool) -> UndoBudget:
    """The budget of the ring. `host_free`: free host memory before training starts; the copy for a checkpoint is
    subtracted, without a GPU also a step's memory, and half of the rest is left free."""
    copied = table.state_total - table.state.get("float32 master copy", 0)
    step = int(table.trained_bytes * PACKED_SHARE + copied)
    if wanted != "auto":
        return UndoBudget(wanted, step)
    free = host_free - copied_bytes(table.checkpoint, 0) - (0 if gpu else table.training)
    budget = min(max(LEAST, int(STEPS * DIRECT * step)), max(0, free) // 2)
    if budget >= DIRECT * step:
        return UndoBudget(budget, step)
    why = f"a step takes {step / 1e9:.1f} GB of host memory, a direct correction up to {DIRECT * step / 1e9:.1f}"
    left = f"{budget / 1e9:.1f} GB may be taken beside a checkpoint's copy"
    return UndoBudget(0, step, f"{why}; {left}; set [checkpoint] undo_bytes to take it all the same")


# --- a search for culprits beside the daemon: memory and disk space -----------------------------------------------

DISK_LEFT = 1_000_000_000
"""bytes reserved for the daemon's own writes: a full disk halts it"""


def memory_of(plan: MemoryPlan) -> int:
    """Memory of the process that runs the steps, on the device of `plan`, in bytes: its own weights and a step."""
    return plan.table.weights + plan.table.training + plan.trainer


def disk_of(table: MemoryTable) -> int:
    """Bytes of the weights and the optimizer state that every replay starts from, and temporarily of the weights before
    them, if those exist only as deltas."""
    return table.checkpoint + table.weights


def lacking_memory(plan: MemoryPlan, free: int) -> str:
    """The reason why a replay cannot run with so many bytes free; empty if it can."""
    if (needed := memory_of(plan)) <= free:
        return ""
    what = "GPU memory" if plan.device.gpu else "memory"
    return (
        f"a replay takes {_gb(needed)} of {what} beside what is served (weights {_gb(plan.table.weights)}, a step "
        f"{_gb(plan.table.training)}), and {_gb(free)} are free"
    )


def lacking_disk(table: MemoryTable, free: int) -> str:
    """The same for the disk of the state directory."""
    needed = disk_of(table)
    if needed + DISK_LEFT <= free:
        return ""
    return (
        f"replays keep {_gb(needed)} on disk, {_gb(DISK_LEFT)} have to be left for the daemon, and {_gb(free)} are free"
    )
