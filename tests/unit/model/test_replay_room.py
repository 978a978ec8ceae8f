"""Is there room for a search beside the daemon?"""

from support.real_shapes import H200, QWEN_8B

from apollod.core.settings import OptimizerSettings
from apollod.model.engine_memory import EngineAsked
from apollod.model.memory_plan import (
    DISK_LEFT,
    Asked,
    Device,
    disk_of,
    lacking_disk,
    lacking_memory,
    memory_of,
    memory_plan,
)
from apollod.model.shapes import shapes_of

PLAN = memory_plan(shapes_of(QWEN_8B, {}), Device(H200, gpu=True), Asked(OptimizerSettings(), engine=EngineAsked(kv=0)))


def test_memory_is_of_weights_and_a_step_and_a_process() -> None:
    needed = memory_of(PLAN)
    assert needed > PLAN.table.weights + PLAN.table.training
    assert not lacking_memory(PLAN, needed)
    said = lacking_memory(PLAN, needed - 1)
    assert said.startswith(f"a replay takes {needed / 1e9:.1f} GB of GPU memory beside what is served")


def test_the_disk_is_never_filled() -> None:
    table = PLAN.table
    assert disk_of(table) == 2 * table.weights + table.state_total
    assert not lacking_disk(table, disk_of(table) + DISK_LEFT)
    assert "1.0 GB have to be left for the daemon" in lacking_disk(table, disk_of(table) + DISK_LEFT - 1)
