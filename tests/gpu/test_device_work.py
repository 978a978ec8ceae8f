"""What a step asks of a device beside its forward and backward pass: how often it is waited for, and what has to fit.
The same checks as far as a CPU can run them: tests/unit/trainer (interpreted_rows.py, test_device_kernels.py,
test_device_to_host.py, test_undo.py)."""

from array import array
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from support.determinism import deterministic  # noqa: F401
from support.fingerprints import check_blocks, check_one_number_is_read
from support.small_models import small_model, tokens_of
from support.teachers import made_up
from torch import Tensor

from apollod.trainer.bind import mapped_memory
from apollod.trainer.kernels.device_to_host import BUFFER_BYTES, in_host_memory, to_host
from apollod.trainer.objectives.context import CONTEXT, TEACHER
from apollod.trainer.objectives.loss import loss_of
from apollod.trainer.objectives.tokens import IDS
from apollod.trainer.optim import apollo_triton, open_step
from apollod.trainer.optim.apollo import Apollo
from apollod.trainer.undo import undo_ring
from apollod.trainer.undo.undo_ring import UndoRing

VOCABULARY, HIDDEN, TOKENS = 65_536, 1024, 96
HEAD_BYTES = VOCABULARY * HIDDEN * 2


@pytest.fixture(autouse=True)
def waiting_allowed() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def learned(kernels: str, steps: int = 2, tie: bool = False, undo_bytes: int = 0) -> tuple[dict[str, Tensor], int]:
    """Everything after some steps on CPU memory, and the most memory above what there was before the last of them."""
    model = small_model(tie=tie, vocabulary=VOCABULARY, hidden=HIDDEN).cuda()
    optimizer = Apollo(model.named_parameters(), lr=1e-3, rank=64, kernels=kernels)  # type: ignore[arg-type]
    optimizer.undo = UndoRing(undo_bytes) if undo_bytes else None
    optimizer.attach()
    optimizer.warm_up()
    for step in range(1, steps + 1):
        loss = loss_of(model, tokens_of(model, TOKENS, seed=step), optimizer)
        optimizer.begin(step)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        if kernels == "triton" and not undo_bytes:
            torch.cuda.set_sync_debug_mode("error")
        loss.backward()
        torch.cuda.set_sync_debug_mode("default")
        peak = torch.cuda.max_memory_allocated() - before
        assert optimizer.finish().updated == len(optimizer.state)
        if optimizer.undo is not None:
            optimizer.undo.end(str(step))
    named = {name: parameter.data.cpu() for name, parameter in model.named_parameters()}
    return named | {name: tensor.cpu() for name, tensor in optimizer.state_tensors().items()}, peak


@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_embedding_and_head_come_in_rows_without_a_wait(tie: bool) -> None:
    found, peak = learned("triton", tie=tie)
    assert peak < HEAD_BYTES // 2
    again, _ = learned("triton", tie=tie)
    assert all(torch.equal(again[name], tensor) for name, tensor in found.items())
    for name, tensor in learned("eager", tie=tie)[0].items():
        if not name.endswith(".t"):
            assert (found[name].double() - tensor.double()).abs().max() <= 2e-2 * tensor.double().abs().max(), name


@pytest.mark.parametrize("kernels", ["triton", "eager"])
def test_keeping_the_way_back_needs_no_copy_of_the_head(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = 4 << 20
    for module in (apollo_triton, open_step, undo_ring):
        monkeypatch.setattr(module, "WRITE_BYTES", block)
    plain, peak = learned(kernels)
    kept, with_undo = learned(kernels, undo_bytes=4 << 30)
    assert all(torch.equal(kept[name], tensor) for name, tensor in plain.items())
    assert with_undo < peak + 3 * HEAD_BYTES // 4  # half of it are the moments of embedding and head
    _, peak = learned(kernels, steps=1)
    _, without_room = learned(kernels, steps=1, undo_bytes=8 << 20)
    assert without_room < peak + HEAD_BYTES // 4


def test_steps_come_back() -> None:
    model = small_model(vocabulary=VOCABULARY, hidden=HIDDEN).cuda()
    optimizer = Apollo(model.named_parameters(), lr=1e-3, rank=64)
    optimizer.undo = ring = UndoRing(4 << 30)
    optimizer.attach()

    def now() -> dict[str, Tensor]:
        tensors = dict(model.named_parameters()) | optimizer.state_tensors()
        return {name: tensor.detach().cpu() for name, tensor in tensors.items()}

    states = []
    for step in (1, 2, 3):
        states.append(now())
        loss = loss_of(model, tokens_of(model, TOKENS, seed=step), optimizer)
        optimizer.begin(step)
        loss.backward()
        optimizer.finish()
        ring.end(str(step))
        assert ring._unsettled == [] == ring._settled
    for before in reversed(states):
        ring.undo(1)
        found = now()
        assert [name for name, tensor in before.items() if not torch.equal(tensor, found[name])] == []


@pytest.mark.parametrize("triton", [True, False])
def test_one_number_is_read_for_the_fingerprint_of_all_tensors(triton: bool) -> None:
    check_one_number_is_read("cuda", triton)
    check_blocks("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("view", ["whole", "turned", "columns", "number"])
def test_what_comes_to_host_memory_is_what_was_there(view: str, dtype: torch.dtype) -> None:
    whole = torch.randn(3000, 3000, device="cuda").bfloat16().float()
    assert whole.nbytes > 4 * BUFFER_BYTES
    source = {"whole": whole, "turned": whole.t(), "columns": whole[:, 7:1500], "number": whole[0, 0]}[view]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = to_host(source, dtype)
    assert torch.equal(found, source.cpu().to(dtype)) and not found.is_pinned()
    assert torch.cuda.max_memory_allocated() - before <= 4 * BUFFER_BYTES
    assert torch.equal(in_host_memory(source, dtype), found)


def test_no_stream_is_made_for_the_default_priority() -> None:
    least, _ = torch.cuda.Stream.priority_range()  # type: ignore[call-arg]
    before = torch.cuda.current_stream()
    mapped_memory.give_way(torch.device("cuda", torch.cuda.current_device()))
    if mapped_memory.priority_below_default(least) is None:
        assert torch.cuda.current_stream() == before
    else:
        assert torch.cuda.current_stream().priority == least
    torch.cuda.set_stream(before)


def test_a_step_by_a_teacher_is_as_on_the_cpu_and_the_same_again() -> None:
    """Context distillation gathers and scatters at the teacher's ids: the same bits each time, and the CPU's loss."""

    def stepped(device: str) -> tuple[float, dict[str, Tensor]]:
        model = small_model(vocabulary=VOCABULARY, hidden=HIDDEN).to(device)
        tokens = tokens_of(model, TOKENS, seed=1)
        learned_ids = [id_ for id_, taught in zip(tokens.ids, tokens.mask, strict=True) if taught]
        teacher = made_up(learned_ids, VOCABULARY, k=16)
        columns = {IDS: array("q", teacher.ids), TEACHER: teacher.logprobs}
        optimizer = Apollo(model.named_parameters(), lr=1e-3, rank=64)
        optimizer.attach()
        loss = loss_of(model, replace(tokens, columns=columns), optimizer, CONTEXT)
        optimizer.begin(1)
        loss.backward()
        optimizer.finish()
        return loss.item(), {name: parameter.data.cpu() for name, parameter in model.named_parameters()}

    (here, found), (again, same), (there, _) = stepped("cuda"), stepped("cuda"), stepped("cpu")
    assert here == again and all(torch.equal(same[name], tensor) for name, tensor in found.items())
    assert here == pytest.approx(there, rel=2e-2)
