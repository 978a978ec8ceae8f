"""What a step takes: measured in a process of its own, and as `config check --memory` tells it beforehand."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from support.effort import cases
from support.fork_server import ForkedPopen
from support.memory_child import measured
from support.model_memory import Memory
from support.real_shapes import GEMMA_4B, QWEN_27B, QWEN_30B
from support.small_models import hybrid, mixture, small_model
from support.trainer_host import Trainer

from apollod.adapters.llm import log_probabilities
from apollod.adapters.system.hardware import products_dtype
from apollod.cli.main import main
from apollod.core.facts.holding import OF_PRACTICE
from apollod.core.facts.lessons.rounds import PRACTISED
from apollod.core.facts.training import HELD_ROOM
from apollod.model import memory_table as sizes
from apollod.model.kept import ROWS, Batch, StepShape
from apollod.model.memory_plan import Asked, Device, memory_plan
from apollod.model.memory_table import MemoryTable, memory_table
from apollod.products import SCRATCH_BYTES
from apollod.store import model_files
from apollod.store.model_files import read_shapes
from apollod.trainer.optim import backward_updates, moments, projector, row_gradient
from apollod.wire import messages as m

MB = 1e6
PRODUCTS = products_dtype("auto")
"""what the trainer multiplies in on this processor; torch's own products of bf16 without instructions for it take
copies of matrices in float32, and minutes"""
SCRATCH = SCRATCH_BYTES if PRODUCTS == "float32" else 0
PAGES = 2 * MB
"""pages of libraries and of the allocator that a step touches for the first time: 0.5 to 1.6 MB were seen"""
KERNELS = 0 if PRODUCTS == "float32" else 40 * MB
"""what oneDNN compiles for products of bf16 if it may keep one kernel at a time, whatever the size of the model: 33 MB
with avx512_bf16, 36 MB with AMX. Else it keeps one for each shape, 77 and 95 MB, since an expert has another number of
tokens than the next"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hybrid: six layers; wide: one matrix, the head, and another, the embedding, above all else; llama; many and tied:
    a vocabulary so large that its projection is more than all else."""
    root = tmp_path_factory.mktemp("models")
    hybrid("dddadd", 9192, hidden=128, inner=512).save_pretrained(root / "hybrid")
    hybrid("a", 65536, hidden=512, inner=256).save_pretrained(root / "wide")
    small_model(hidden=256).save_pretrained(root / "llama")
    for name in ("many", "tied"):
        small_model(hidden=64, vocabulary=65536, tie=name == "tied").save_pretrained(root / name)
    return root


def table(model_dir: Path, again: bool = False, **settings: object) -> MemoryTable:
    return memory_table(read_shapes(model_dir), m.OptimizerSettings(**settings), 1, again)


def test_no_temporary_of_a_matrix_size_exists_in_a_step(models: Path) -> None:
    """Embedding and head are 67 MB each."""
    matrix = 65536 * 512 * 2
    rows = measured(models / "wide", tokens=64, rank=16, gradient_checkpointing=False)
    assert rows["peak"] < matrix / 2.5 + SCRATCH < matrix, rows["peak"] / MB
    whole = measured(models / "wide", tokens=64, rank=16, gradient_checkpointing=False, rows=False)
    assert whole["peak"] > matrix, whole["peak"] / MB
    assert rows["fingerprint"] == whole["fingerprint"]


@pytest.mark.skipif(PRODUCTS == "float32", reason="this processor has no kernels for products of bf16")
def test_beside_the_kernels_for_bf16_float32_products_take_their_scratch(models: Path) -> None:
    narrow, wide = (
        measured(models / "wide", tokens=64, rank=16, gradient_checkpointing=False, products=products)
        for products in ("bf16", "float32")
    )
    assert wide["fingerprint"] != narrow["fingerprint"], "or it measures nothing"
    assert wide["peak"] < narrow["peak"] + SCRATCH_BYTES, (wide["peak"] / MB, narrow["peak"] / MB)


def test_nor_in_float32_products(models: Path) -> None:
    matrix = 65536 * 512 * 2
    wide = measured(models / "wide", tokens=64, rank=16, gradient_checkpointing=False, products="float32")
    assert wide["peak"] < matrix / 2.5 + SCRATCH_BYTES < matrix, wide["peak"] / MB
    whole = measured(models / "wide", tokens=64, rank=16, gradient_checkpointing=False, rows=False, products="float32")
    assert whole["fingerprint"] == wide["fingerprint"]


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_nor_with_another_optimizer(models: Path, name: str) -> None:
    matrix = 65536 * 512 * 2
    rows = measured(models / "wide", tokens=64, rank=8, name=name)
    assert rows["peak"] < matrix / 2.5 + SCRATCH, rows["peak"] / MB
    expected_table = table(models / "wide", name=name, max_tokens=64)
    expected = expected_table.training - expected_table.state_total
    assert expected_table.state_total == rows["state_bytes"]
    assert 0.85 * expected <= rows["peak"] <= 1.15 * expected + SCRATCH, (rows["peak"] / MB, expected / MB)


@pytest.mark.parametrize("name", cases(["adafactor"], ["adamw"]))
def test_whole_gradients_of_another_optimizer_would_be_seen_and_give_the_same_bits(models: Path, name: str) -> None:
    rows, whole = (measured(models / "wide", tokens=64, rank=8, name=name, **given) for given in ({}, {"rows": False}))
    assert whole["peak"] > 65536 * 512 * 2, whole["peak"] / MB
    assert rows["fingerprint"] == whole["fingerprint"]


@pytest.mark.parametrize(
    ("name", "tokens", "gradient_checkpointing"),
    cases(
        [("hybrid", 512, False), ("hybrid", 512, True), ("wide", 64, False), ("tied", 200, False)],
        [("llama", 1000, False), ("llama", 1000, True), ("many", 200, False)],
    ),
)
def test_the_table_tells_what_a_step_takes(models: Path, name: str, tokens: int, gradient_checkpointing: bool) -> None:
    rank = 64 if name in ("many", "tied") else 16
    found = measured(models / name, tokens=tokens, rank=rank, gradient_checkpointing=gradient_checkpointing)
    expected_table = table(models / name, gradient_checkpointing, rank=rank, max_tokens=tokens)
    assert expected_table.state_total == found["state_bytes"]
    assert (
        0 <= found["weights_bytes"] - expected_table.weights <= 2 * 2 * 5
    )  # A_log of five layers lies in memory as float32
    expected = expected_table.training - expected_table.state_total
    assert 0.9 * expected <= found["peak"] <= 1.1 * expected + SCRATCH, (found["peak"] / MB, expected / MB)
    copy = expected_table.checkpoint
    assert 0.98 * copy <= found["snapshot"] <= 1.05 * copy + 2 * MB, (found["snapshot"] / MB, copy / MB)


STEPS = {
    "an example": StepShape(Batch(1, 300)),
    "an example and its anchors": StepShape(Batch(1, 300), Batch(4, 128)),
    "a practice": StepShape(Batch(10, 24), Batch(10, 57)),
    "a practice of which no logits are kept": StepShape(Batch(10, 30), Batch(10, 51)),
    "short ones": StepShape(Batch(10, 12), Batch(8, 16)),
}
"""of at most 300 tokens, or 812 with their anchors"""


CHOSEN = [
    ("an example and its anchors", True), ("a practice", False), ("a practice of which no logits are kept", True),
    ("short ones", False),
]  # fmt: skip
"""Each shape of several sequences, with layers that are kept and that are computed again."""


@pytest.mark.parametrize(
    ("name", "again"), cases(CHOSEN, [pair for pair in product(STEPS, (False, True)) if pair not in CHOSEN])
)
def test_a_step_with_its_anchors_takes_no_more_than_is_planned(models: Path, name: str, again: bool) -> None:
    """The table tells also what this very step takes, to a tenth."""
    step, settings = STEPS[name], m.OptimizerSettings(rank=16, max_tokens=300)
    asked = Asked(settings, gradient_checkpointing=again)
    plan = memory_plan(read_shapes(models / "llama"), Device(10**12, gpu=False), asked)
    assert step.learned.tokens <= 300 and step.tokens <= plan.step_tokens == 300 + HELD_ROOM
    found = measured(
        models / "llama", tokens=step.learned.length, wordings=step.learned.rows, anchors=step.held.rows,
        anchor_tokens=step.held.length, rank=16, gradient_checkpointing=again,
    )  # fmt: skip
    planned = plan.table.training - plan.table.state_total
    assert found["peak"] <= planned + SCRATCH, (found["peak"] / MB, planned / MB)
    table = memory_table(read_shapes(models / "llama"), settings, 1, again, step)
    expected = table.training - table.state_total
    assert 0.9 * expected <= found["peak"] <= 1.1 * expected + SCRATCH + PAGES, (found["peak"] / MB, expected / MB)


def test_sequences_of_a_hybrid_are_filled_up_to_whole_pieces(models: Path) -> None:
    """And its logits are gone before layers are computed again, though its recurrence makes more of a longer one."""
    step = StepShape(Batch(1, 384), Batch(2, 64))
    found = measured(models / "hybrid", tokens=384, anchors=2, anchor_tokens=64, rank=16, gradient_checkpointing=True)
    table = memory_table(read_shapes(models / "hybrid"), m.OptimizerSettings(rank=16), 1, True, step)
    expected = table.training - table.state_total
    assert 0.9 * expected <= found["peak"] <= 1.1 * expected + SCRATCH, (found["peak"] / MB, expected / MB)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
def test_a_step_of_a_mixture_takes_no_more_than_is_planned(
    tmp_path_factory: pytest.TempPathFactory, again: bool
) -> None:
    """Its table has bounds where others have counts."""
    root = tmp_path_factory.mktemp("mixture")
    mixture(experts=16, taken=4, hidden=256, inner=256).save_pretrained(root)
    found = measured(root, tokens=600, rank=16, gradient_checkpointing=again, kernels=1)
    expected_table = table(root, again, rank=16, max_tokens=600)
    assert expected_table.bound and expected_table.state_total == found["state_bytes"]
    expected = expected_table.training - expected_table.state_total
    bound = 1.1 * expected + SCRATCH + PAGES + KERNELS
    assert 0.5 * expected <= found["peak"] <= bound, (found["peak"] / MB, expected / MB)


def test_checkpointing_takes_less_memory_and_gives_the_same_bits(models: Path) -> None:
    plain, again = (measured(models / "hybrid", tokens=512, rank=16, gradient_checkpointing=c) for c in (False, True))
    assert again["fingerprint"] == plain["fingerprint"]
    assert again["peak"] < 0.5 * plain["peak"] + SCRATCH / 2, (again["peak"] / MB, plain["peak"] / MB)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    with Trainer(tmp_path_factory.mktemp("trainer")) as found:
        yield found


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 16}, {"rank": 16, "moments": "bfloat16"}, {"rank": 1, "scale": "tensor"},
        {"rank": 16, "rounding": "master"},
        {"name": "adamw"}, {"name": "adamw", "moments": "bfloat16"}, {"name": "adafactor"},
        {"rank": 16, "layers": "1-2", "freeze": ("*.A_log",)},
    ],
    ids=str,
)  # fmt: skip
def test_the_state_is_what_the_trainer_reports(tiny_model: Path, trainer: Trainer, settings: dict[str, object]) -> None:
    memory = Memory.of(tiny_model)
    trainer.attach(memory, m.OptimizerSettings(**settings), m.Bound)
    assert trainer.restore(None, memory, weights=False).state_bytes == table(tiny_model, **settings).state_total


def test_the_table_counts_with_the_trainers_sizes() -> None:
    assert (sizes.BLOCK_ROWS, sizes.BLOCK_ELEMENTS) == (row_gradient.BLOCK_ROWS, projector.BLOCK_ELEMENTS)
    assert (sizes.WAITING_BYTES, sizes.LIKELIEST) == (backward_updates.WAITING_BYTES, log_probabilities.LIKELIEST)
    assert max(PRACTISED, OF_PRACTICE) <= ROWS
    assert (sizes.QUANTIZED_BLOCK, sizes.QUANTIZED_MIN) == (moments.QUANTIZED_BLOCK, moments.QUANTIZED_MIN)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_27B))
    return tmp_path


@pytest.fixture
def shaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads shapes is forked."""
    monkeypatch.setattr(model_files, "subprocess", ForkedPopen)


def command(model: Path, *arguments: str) -> list[str]:
    return ["config", "check", "--memory", "--set", f"model.path={model}", *arguments]


def test_the_state_of_the_27b_model_follows_from_its_config_alone(
    qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(qwen, "--json", "--device-gb", "141")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["from"] == "config.json"
        and told["parameters"] == 26_895_998_464
        and told["weights_bytes"] == 53_791_996_928
    )
    layers, ends = told["state"]["APOLLO, layers"], told["state"]["APOLLO, embedding and head"]
    assert (round(layers / 1e9, 2), round((layers + ends) / 1e9, 2)) == (2.50, 2.75)
    assert ends == 2 * (2 * 4 * 248320 * 64 + 16)
    rest = told["state_bytes"] - layers - ends
    assert rest == pytest.approx(210e6, rel=1e-3)
    assert told["kv_bytes_per_token"] == 16 * 4 * 4 * 256 and told["fits"] is True
    assert told["host_checkpoint_bytes"] == told["weights_bytes"] + told["state_bytes"]
    left = 141e9 - told["weights_bytes"] - told["training_bytes"] - told["process_bytes"] - told["slack_bytes"]
    assert told["kv_left_bytes"] == left and left - (1 << 20) < told["kv_bytes"] <= left


@pytest.mark.parametrize("process", cases(["forked"], ["started"]))
def test_of_any_other_architecture_transformers_tells_the_shapes(
    process: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, which the long run starts as users do. Those of Gemma 3 are known from little that its
    config.json says."""
    if process == "forked":
        monkeypatch.setattr(model_files, "subprocess", ForkedPopen)
    (tmp_path / "config.json").write_text(json.dumps(GEMMA_4B))
    assert main(command(tmp_path, "--json", "--device-gb", "141")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["from"] == "config.json" and told["activations_bound"] is True
    assert told["kv_bytes_per_token"] == 34 * 4 * 4 * 256
    assert 3.8e9 < told["trained"] < 4e9 < told["parameters"] < 4.4e9, "images are not learned"


def test_a_mixture_of_experts_has_a_plan_with_its_experts_projected_one_by_one(
    tmp_path: Path, shaped: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Qwen3-30B-A3B on one H200. Adam would take 244 GB."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_30B))
    assert main(command(tmp_path, "--json", "--device-gb", "141")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == 30_532_122_624 and told["fits"] is True
    experts = 48 * 128 * 3 * (2 * 4 * 2048 * 64 + 16)
    assert experts < told["state"]["APOLLO, layers"] < 1.02 * experts
    assert told["gradient_bytes"] == 128 * 2 * 768 * 2048 * 2, "gate and up of all experts of a layer come together"
    assert told["kv_bytes"] > 40e9


@pytest.mark.parametrize("setting", ["optimizer=apollo", "kernels=eager", "optimizer=adamw"])
def test_the_gradients_of_embedding_and_head_are_never_whole(
    qwen: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The MLP's is the largest."""
    main(command(qwen, "--json", "--device-gb", "141", "--set", f"trainer.{setting}"))
    assert json.loads(capsys.readouterr().out)["gradient_bytes"] == 2 * 17408 * 5120


def test_what_does_not_fit_is_a_failure_that_says_what_to_change(
    qwen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(qwen, "--device-gb", "141", "--set", "trainer.gradient_checkpointing=false")) == 1
    out = capsys.readouterr().out
    assert "GB are missing" in out and "; set [trainer] gradient_checkpointing = true; or lower" in out
    assert "26.896 billion parameters" in out
    assert main(command(qwen, "--device-gb", "141")) == 0
    out = capsys.readouterr().out
    assert "where layers are computed again" in out and "KV cache" in out and "missing" not in out


def test_layers_that_are_not_trained_cost_nothing(qwen: Path) -> None:
    whole, part = table(qwen), table(qwen, layers="60-63")
    assert part.weights == whole.weights and part.trained < whole.trained / 15
    assert part.state_total < whole.state_total / 15 and part.activations < whole.activations / 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "is no JSON object"),
        ('{"model_type": "gpt9"}', "are not known from config.json alone"),
        ('{"model_type": "llama", "hidden_size": 8}', "does not say 'vocab_size'"),
        (json.dumps({"text_config": QWEN_27B["text_config"] | {"head_dim": "wide"}}), "makes no sense"),
        (json.dumps({"text_config": QWEN_27B["text_config"] | {"layer_types": ["full_attention"]}}), "makes no sense"),
    ],
)
def test_a_directory_that_cannot_be_sized(
    tmp_path: Path, content: str | None, message: str, shaped: None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert main(command(tmp_path)) == 1
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err and not captured.out


def test_a_header_that_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_27B))
    (tmp_path / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    assert main(command(tmp_path)) == 1
    assert "is no safetensors file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--device-gb", "nan"], ["--device-gb", "-1"], ["--device-gb", "x"]])
def test_a_device_of_no_size(qwen: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(command(qwen, *arguments))
    assert left.value.code == 2


def test_the_option_of_the_table_wants_the_table(qwen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--device-gb", "141", "--set", f"model.path={qwen}"]) == 2
    assert "--memory" in capsys.readouterr().err


def test_nothing_heavy_is_imported_for_it(qwen: Path) -> None:
    code = f"import sys; from apollod.cli.main import main; main({command(qwen)!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0
