"""Mixtures of experts: modules that see one tensor, an optimizer and a checkpoint that see a matrix an expert."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.apollo_oracle import Oracle
from support.attached import bound_to
from support.effort import cases
from support.model_memory import EXPERT, Memory
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from apollod.errors import ShareRefused
from apollod.model.decoder import is_expert, layer_of, part_of_expert
from apollod.model.memory_table import memory_table
from apollod.store.model_files import read_shapes
from apollod.trainer.bind.attach import Attached, Rows, split
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.optim.optimizers import make_optimizer
from apollod.wire.messages import OptimizerSettings

SIZES = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": False, "num_experts": 12, "num_local_experts": 12,
    "moe_intermediate_size": 96, "num_experts_per_tok": 2, "mlp_only_layers": [], "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 160, "initializer_range": 0.2, "pad_token_id": 0,
    "layer_types": ["full_attention", "full_attention"],
}  # fmt: skip
KINDS = cases(["qwen3_moe", "mixtral", "qwen3_5_moe_text"], ["olmoe", "qwen2_moe"])
"""Names of experts of two sorts, and an expert that all tokens share"""
IDS = torch.arange(3, 43).unsqueeze(0)
AFTER = ("down_proj", "w2")


def build(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**SIZES), dtype=torch.bfloat16).eval()


def bound(model_dir: Path, place: Any = None) -> tuple[Attached, Memory]:
    memory = Memory.of(model_dir, place)
    return bound_to(memory), memory


@pytest.fixture(scope="module", params=[*KINDS, "stacked"])
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As transformers saves it, a matrix an expert; `stacked`: as Qwen3.5's own files are, a tensor a layer."""
    root = tmp_path_factory.mktemp(request.param)
    model = build("qwen3_5_moe_text" if request.param == "stacked" else request.param)
    model.save_pretrained(root)
    if request.param == "stacked":
        save_file({name: p.data for name, p in model.named_parameters()}, root / "model.safetensors")
    return root


def losses(model: PreTrainedModel) -> Tensor:
    return model(input_ids=IDS, labels=IDS, use_cache=False).loss


def test_the_model_is_the_one_that_transformers_loads_and_its_gradients_are(model_dir: Path) -> None:
    attached, _ = bound(model_dir)
    loaded = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    ours, theirs = losses(attached.model), losses(loaded)
    assert torch.equal(ours, theirs)
    ours.backward()
    theirs.backward()
    given = dict(attached.shared)
    experts = {name for name in given if is_expert(name)}
    stacks = {n: p for n, p in loaded.named_parameters() if is_expert(n) and p.dim() == 3}
    assert len(experts) >= 12 * 2 * 2 and len(stacks) == 4
    assert not any(p.dim() == 3 for name, p in given.items() if name in experts)
    for name, stack in stacks.items():
        for number in range(12):
            mine = sorted(
                other
                for other in experts
                if layer_of(other) == layer_of(name) and f"experts.{number}." in other
                and (part_of_expert(other) in AFTER) == name.endswith("down_proj")
            )  # fmt: skip
            assert mine and torch.equal(torch.cat([given[one].grad for one in mine]), stack.grad[number]), mine
    assert any(p.grad.any() for p in stacks.values())


def step(attached: Attached, optimizer: Apollo, number: int) -> None:
    optimizer.begin(number, 1e-2)
    losses(attached.model).backward()
    optimizer.finish()


def test_steps_inside_the_backward_pass_learn_and_leave_the_same_bits_each_time(model_dir: Path) -> None:
    """And the engine's memory is what has changed."""
    found = []
    for _ in range(2):
        attached, memory = bound(model_dir)
        before, first = memory.bytes.copy(), float(losses(attached.model))
        optimizer = make_optimizer(OptimizerSettings(rank=64), attached.trainable, attached.round_to)
        optimizer.attach()
        for number in range(1, 5):
            step(attached, optimizer, number)
        assert all(p.grad is None for _, p in attached.shared)
        assert float(losses(attached.model)) < first - 0.1 and (memory.bytes != before).mean() > 0.1
        found.append((attached.weights.fingerprint(), memory.bytes.tobytes()))
    assert found[0] == found[1]


def test_an_expert_that_no_token_went_to_keeps_its_bits_and_its_state(model_dir: Path) -> None:
    attached, _ = bound(model_dir)
    optimizer = make_optimizer(OptimizerSettings(rank=64), attached.trainable, attached.round_to)
    optimizer.attach()
    before = {name: p.detach().clone() for name, p in attached.shared}
    optimizer.begin(1, 1e-2)
    attached.model(input_ids=IDS[:, :3], labels=IDS[:, :3], use_cache=False).loss.backward()
    report = optimizer.finish()
    idle = {name for name in report.skipped if is_expert(name)}
    assert idle and len(idle) < sum(map(is_expert, before)), "12 experts a layer, 3 tokens with 2 each"
    for name, parameter in attached.shared:
        if name in idle:
            assert torch.equal(parameter, before[name]) and int(optimizer.state[parameter]["t"]) == 0


def test_the_table_tells_the_state_and_experts_are_projected(model_dir: Path) -> None:
    attached, _ = bound(model_dir)
    settings = OptimizerSettings(rank=64)
    optimizer = make_optimizer(settings, attached.trainable, attached.round_to)
    table = memory_table(read_shapes(model_dir), settings, 1, False)
    assert optimizer.state_bytes() == table.state_total
    for name, parameter in attached.shared:
        if is_expert(name):
            assert sorted(optimizer.state[parameter]["m"].shape) == [64, max(parameter.shape)], name


def test_each_expert_follows_the_formulas_in_float64() -> None:
    """Of a stack [experts, out, in] that a module multiplies with as one, and that a checkpoint has in parts."""
    torch.manual_seed(0)
    module, rows = torch.nn.Module(), []
    for number in range(3):
        rows += [Rows(f"experts.{number}.{part}.weight", 48 * number + 16 * at, 16) for at, part in enumerate("abc")]
    start = torch.randn(3, 48, 24)
    given = dict(zip([part.name for part in rows], split(module, "up", start.clone(), rows), strict=True))
    options = {"lr": 1e-2, "rank": 8, "scale": "channel", "weight_decay": 0.1, "gap": 4, "gamma": 1.01}
    options["limiter_rule"] = "envelope"
    oracles = {name: Oracle(name, p.detach(), **options) for name, p in given.items()}
    optimizer = Apollo(given.items(), seed=7, **options)
    optimizer.attach()
    for number in range(1, 7):
        wanted = torch.randn(3, 48, 24)
        wanted[number % 3] = 0  # no token went there
        for part in rows:
            gradient = wanted.view(-1, 24)[part.first : part.first + part.count]
            if gradient.any():
                oracles[part.name].step(number, gradient)
        optimizer.begin(number, 1e-2)
        (module.up * wanted).sum().backward()
        assert optimizer.finish().updated == 6
    for part in rows:
        origin = start.view(-1, 24)[part.first : part.first + part.count].double()
        moved, expected = given[part.name].detach().double() - origin, oracles[part.name].w - origin
        assert float((moved - expected).norm() / expected.norm()) < 1e-5, part.name
    assert torch.equal(module.up, torch.cat(list(given.values())).view(3, 48, 24)), "it is the same memory"


def test_what_is_frozen_by_the_checkpoints_name_is_not_trained(model_dir: Path) -> None:
    attached, _ = bound(model_dir)
    part = attached.select("", ["*.experts.*"])
    assert part.trainable and not any(is_expert(name) for name, _ in part.trainable)
    losses(part.model).backward()
    assert all(p.grad is None for name, p in part.shared if is_expert(name))


def test_memory_that_holds_experts_in_another_order_is_refused(tmp_path: Path) -> None:
    """As FlashInfer's backends swap both halves of w13."""
    build("qwen3_moe").save_pretrained(tmp_path)

    def swapped(name: str) -> tuple[Any, ...]:
        found = EXPERT.match(name)
        return (found[1], found[3] in AFTER, int(found[2]), found[3] != "up_proj") if found else (name,)

    with pytest.raises(ShareRefused, match="right behind") as refused:
        bound(tmp_path, swapped)
    assert "--moe-backend" in refused.value.hint
