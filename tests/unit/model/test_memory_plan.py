"""How a device is shared out, with the shapes of the target: what fits what, and what is said where it does not."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import draws
from support.real_shapes import B200, H200, QWEN_8B, QWEN_27B

from apollod.core.facts.training import bounds
from apollod.core.settings import OptimizerSettings
from apollod.errors import DoesNotFit
from apollod.model.engine_memory import DRIVER, SLACK, EngineAsked, engine_asked
from apollod.model.kept import ROWS, Batch, StepShape
from apollod.model.memory_plan import (
    DIRECT,
    LEAST,
    STEPS,
    Asked,
    Device,
    MemoryPlan,
    check_fits,
    fitting,
    memory_plan,
    undo_budget,
    ways_out,
)
from apollod.model.memory_table import bounded_table, memory_table
from apollod.model.shapes import shapes_of

TARGET, DENSE = shapes_of(QWEN_27B, {}), shapes_of(QWEN_8B, {})
SMALL = [
    shapes_of(QWEN_8B | {"hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": 2}, {})
    for hidden, vocabulary in ((64, 400), (576, 49152), (1024, 151936))
]
HYBRID = shapes_of(
    QWEN_27B | {"text_config": QWEN_27B["text_config"] | {"num_hidden_layers": 4, "layer_types": None}}, {}
)
DEFAULTS = Asked(OptimizerSettings(), engine=EngineAsked(length=32768))
GB = 10**9


def on(gpu_bytes: int, asked: Asked = DEFAULTS) -> MemoryPlan:
    return memory_plan(TARGET, Device(gpu_bytes, gpu=True), asked)


@pytest.mark.parametrize(("device", "cache"), [(H200, 60), (B200, 100), (141 * GB, 55), (180 * GB, 90)])
def test_the_defaults_train_the_target_on_one_card(device: int, cache: int) -> None:
    plan = on(device)
    assert not plan.missing and plan.gradient_checkpointing and not plan.kv_given
    assert plan.kv > cache * GB and plan.kv > 20 * plan.kv_least
    spent = plan.table.weights + plan.table.training + plan.engine + plan.trainer + plan.slack + plan.kv
    assert device - (1 << 20) < spent <= device, "nothing is left over, nothing is given twice"
    assert plan.slack == SLACK > 2 << 30, "but for what nobody may be given"


def test_the_host_needs_no_slack_of_a_gpu() -> None:
    assert not memory_plan(TARGET, Device(H200, gpu=False), DEFAULTS).slack


@pytest.mark.parametrize(
    ("smi", "torch_finds"),
    [(81559 << 20, 79.11), (15360 << 20, 14.75), (32607 << 20, 31.37)],
    ids=["H100", "T4", "RTX 5090"],
)
def test_what_is_planned_can_be_had(smi: int, torch_finds: float) -> None:
    """As reports of lacking memory say, torch has less of a GPU than `nvidia-smi` calls its total."""
    assert smi - DRIVER < torch_finds * 2**30


def test_layers_are_computed_again_only_where_the_step_would_not_fit_otherwise() -> None:
    """The device on which the step just fits, to the byte of the KV cache's rounding."""
    kept = on(10**13, replace(DEFAULTS, gradient_checkpointing=False))
    enough = kept.taken + kept.kv_least
    enough += (1 << 20) - 1  # the cache comes in whole MiB
    assert not on(enough).gradient_checkpointing and not on(enough).missing
    assert on(enough - (2 << 20)).gradient_checkpointing
    assert on(enough - (2 << 20)).kv > 100 * GB


def test_who_decides_it_is_asked_nothing() -> None:
    assert on(B200, replace(DEFAULTS, gradient_checkpointing=False)).missing > 50 * GB
    assert on(10**13, replace(DEFAULTS, gradient_checkpointing=True)).gradient_checkpointing


def test_a_model_that_leaves_room_keeps_its_layers() -> None:
    plan = memory_plan(DENSE, Device(H200, gpu=True), DEFAULTS)
    assert not plan.gradient_checkpointing and plan.kv > 10 * GB


def test_half_of_the_target_is_refused_with_figures_and_three_ways_out_that_are_true() -> None:
    device, asked = Device(69 * GB + SLACK, gpu=True), replace(DEFAULTS, gradient_checkpointing=False)
    with pytest.raises(DoesNotFit) as refused:
        check_fits(TARGET, device, asked)
    text, ways = str(refused.value), refused.value.hint.split("; or ")
    assert "GPU of 71.3 GB" in text and "weights 53.8 GB" in text and "are missing" in text
    assert len(ways) == 3 and all("gradient_checkpointing = true and " in way for way in ways), ways
    tokens = int(re.search(r"max_tokens to (\d+)", refused.value.hint)[1])
    better = replace(asked, gradient_checkpointing=True, settings=OptimizerSettings(max_tokens=tokens))
    assert not memory_plan(TARGET, device, better).missing
    worse = replace(better, settings=OptimizerSettings(max_tokens=tokens + 128))
    assert memory_plan(TARGET, device, worse).missing, "the largest that fits"


def test_the_cheapest_way_comes_first() -> None:
    asked = replace(DEFAULTS, gradient_checkpointing=False)
    ways = ways_out(TARGET, Device(H200, gpu=True), asked).split("; or ")
    assert ways[0] == "set [trainer] gradient_checkpointing = true" and len(ways) == 3
    assert "max_tokens" in ways[1] and "layers = " in ways[2]


def test_whatever_costs_only_time_is_named_before_what_costs_learning() -> None:
    asked = replace(DEFAULTS, accumulate=4, settings=OptimizerSettings(rounding="master"))
    one, other = "set [trainer] accumulate = 1", 'set [trainer] rounding = "stochastic"'
    roomy, tight = (ways_out(TARGET, Device(size * GB, gpu=True), asked).split("; or ") for size in (190, 140))
    assert roomy[:2] == [one, other] and "layers" in roomy[2]
    assert tight[0] == f"{one} and {other}" and "layers" in tight[1]


def test_where_nothing_helps_it_says_how_much_memory_would() -> None:
    with pytest.raises(DoesNotFit) as refused:
        check_fits(TARGET, Device(40 * GB, gpu=True), DEFAULTS)
    wanted = float(re.fullmatch(r"use a smaller model, or ([\d.]+) GB of memory", refused.value.hint)[1])
    assert not on(int((wanted + 0.1) * GB)).missing and on(int((wanted - 0.1) * GB)).missing


@pytest.mark.parametrize(
    ("engine", "way"),
    [
        (engine_asked(["--gpu-memory-utilization", "0.95"]), "leave --gpu-memory-utilization out of [engine] args"),
        (engine_asked([], 120_000), "lower [engine] kv_cache_mib to "),
        (engine_asked(["--kv-cache-memory-bytes", "120G"]), "lower --kv-cache-memory-bytes in [engine] args to "),
    ],
)
def test_a_cache_that_was_sized_by_hand_is_counted_and_may_be_too_much(engine: EngineAsked, way: str) -> None:
    device = Device(H200, gpu=True)
    with pytest.raises(DoesNotFit) as refused:
        check_fits(TARGET, device, replace(DEFAULTS, engine=engine))
    assert refused.value.hint.startswith(way)
    if found := re.search(r"kv_cache_mib to (\d+)", refused.value.hint):
        assert not check_fits(TARGET, device, replace(DEFAULTS, engine=engine_asked([], int(found[1])))).missing


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ([], EngineAsked()),
        (["--max-model-len", "32k"], EngineAsked(length=32000)),
        (["--kv-cache-memory-bytes=2G"], EngineAsked(kv=2 << 30, sized=True)),
        (["--gpu_memory_utilization", "0.5"], EngineAsked(share=0.5, sized=True)),
        (["--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "7"], EngineAsked(kv=7, sized=True)),
        (["--gpu-memory-utilization", "much"], EngineAsked(sized=True)),
        (["--num-gpu-blocks-override", "9"], EngineAsked(sized=True)),
        (["--max-num-seqs", "16", "--max-num-batched-tokens", "2048"], EngineAsked(sequences=16, batched=2048)),
    ],
)
def test_what_the_arguments_of_vllm_say(args: list[str], asked: EngineAsked) -> None:
    assert engine_asked(args) == asked


def test_a_smaller_batch_of_the_engine_leaves_more_for_the_cache() -> None:
    asked = replace(DEFAULTS, engine=engine_asked(["--max-model-len", "32768", "--max-num-seqs", "64"]))
    assert on(H200, asked).kv > on(H200).kv + 4 * GB


# --- how many tokens a step may have ------------------------------------------------------------------------------


@draws(60, 1000)
@given(
    st.sampled_from(range(1 + len(SMALL))), st.booleans(), st.sampled_from([64, 256, 1000, 4096]), st.integers(0, 3),
    st.data(),
)  # fmt: skip
def test_no_step_within_the_figure_takes_more_than_is_planned(
    which: int, again: bool, most: int, number: int, data: st.DataObject
) -> None:
    model = [HYBRID, *SMALL][which]
    settings, bound = OptimizerSettings(max_tokens=most), bounds(most, True)[number]
    planned = bounded_table(model, settings, 1, again, bound, True)
    rows = data.draw(st.integers(1, ROWS))
    learned = Batch(rows, data.draw(st.integers(1, max(1, min(most, bound) // rows))))
    learned = learned if learned.tokens <= min(most, bound) else Batch(1, most)
    rows = data.draw(st.integers(1, ROWS))
    held = Batch(rows, data.draw(st.integers(0, max(0, bound - learned.tokens) // rows)))
    step = memory_table(model, settings, 1, again, StepShape(learned, held))
    assert planned.training >= step.training - 0.01 * (step.training - step.state_total), step.step
    alone = memory_table(model, settings, 1, again)
    assert planned.training >= alone.training


@pytest.mark.parametrize(
    ("most", "bound", "learned", "held"),
    [
        (256, 768, Batch(10, 3), Batch(10, 73)),
        (64, 576, Batch(8, 6), Batch(8, 66)),
        (64, 192, Batch(2, 5), Batch(1, 176)),
    ],
)
def test_sequences_a_little_longer_than_chunks_are_planned_for(
    most: int, bound: int, learned: Batch, held: Batch
) -> None:
    """Short sequences are filled up to whole chunks by a gated delta net: up to a sixth more than a step without."""
    settings = OptimizerSettings(max_tokens=most)
    planned = bounded_table(HYBRID, settings, 1, False, bound, True)
    step = memory_table(HYBRID, settings, 1, False, StepShape(learned, held))
    assert planned.training >= step.training - 0.01 * (step.training - step.state_total)


def test_where_memory_is_short_steps_have_fewer_tokens_before_anything_is_refused() -> None:
    """On ever smaller devices, down to the one that one example alone of `max_tokens` does not fit. vLLM's batch is the
    same on all of them."""
    engine = EngineAsked(length=32768, batched=2048, sequences=256)
    asked = replace(DEFAULTS, gradient_checkpointing=True, engine=engine)
    alone = memory_table(TARGET, OptimizerSettings(), 1, True).training
    seen = list[int]()
    size = 75 * GB + SLACK
    while not (plan := on(size, asked)).missing:
        seen.append(plan.step_tokens)
        size -= 80_000_000
    assert list(dict.fromkeys(seen)) == list(bounds(4096, True))
    assert plan.step_tokens == 2048 and plan.table.training == alone, "what is refused is what one example takes"
    assert on(H200, replace(asked, holds=False)).step_tokens == 4096


def test_recorded_steps_are_planned_as_they_are() -> None:
    recorded = on(H200, replace(DEFAULTS, bound=700, settings=OptimizerSettings(max_tokens=300)))
    assert recorded.step_tokens == 700 and recorded.table.step.tokens >= 700
    assert on(10**10, replace(DEFAULTS, bound=700)).step_tokens == 700


# --- a new configuration ------------------------------------------------------------------------------------------


def test_a_new_configuration_keeps_what_fits() -> None:
    assert fitting(TARGET, Device(B200, gpu=True), DEFAULTS)[0] == DEFAULTS


def test_and_takes_back_as_little_as_makes_it_fit() -> None:
    device = Device(70 * GB + SLACK, gpu=True)
    assert memory_plan(TARGET, device, DEFAULTS).missing
    asked, plan = fitting(TARGET, device, DEFAULTS)
    assert not plan.missing and asked.settings == DEFAULTS.settings
    assert 1024 <= asked.engine.length < 32768
    with pytest.raises(DoesNotFit):
        fitting(TARGET, Device(30 * GB, gpu=True), DEFAULTS)


# --- the undo ring ------------------------------------------------------------------------------------------------


def test_the_ring_of_the_target_holds_steps_where_the_host_has_room_and_says_why_not_where_it_has_none() -> None:
    table = on(H200).table
    roomy, tight = (undo_budget(table, "auto", free, gpu=True) for free in (1500 * GB, 70 * GB))
    assert roomy.steps == int(STEPS * DIRECT) and 10 * GB < roomy.step < 14 * GB
    assert tight.bytes == 0 and "a step takes 11.9 GB of host memory" in tight.refused
    assert undo_budget(table, "auto", 200 * GB, gpu=True).steps == 5
    assert not undo_budget(table, "auto", 110 * GB, gpu=True).bytes, "one step would fit, but no direct correction"
    assert undo_budget(table, 5, 0, gpu=True).bytes == 5 and not undo_budget(table, 0, 0, gpu=True).refused


def test_a_checkpoint_keeps_its_room_beside_the_ring() -> None:
    table = on(H200).table
    for free in range(60, 700, 10):
        budget = undo_budget(table, "auto", free * GB, gpu=True)
        assert budget.bytes == 0 or budget.bytes + 1.1 * table.checkpoint < free * GB


def test_a_small_model_has_the_ring_it_always_had() -> None:
    small = shapes_of(QWEN_8B | {"num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 400}, {})
    table = memory_plan(small, Device(16 * GB, gpu=False), Asked(OptimizerSettings())).table
    assert undo_budget(table, "auto", 10 * GB, gpu=False).bytes == LEAST
