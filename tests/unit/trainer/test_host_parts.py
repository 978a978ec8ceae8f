"""Tensors written through little host memory: the bytes are those of safetensors, and no part is large."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.fork_server import said

from apollod.trainer.checkpoints import weights_snapshot as parts
from apollod.trainer.checkpoints.write_checkpoint import write_tensors


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 7, 5),
        torch.randn(40, 3).t(),
        torch.randn(2, 50, 3)[:, ::2, 1:],
        torch.randn(4, 6, 100).transpose(0, 2),
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.randn(1, 1, 200).expand(1, 3, 200),
    ],
    ids=lambda t: f"{list(t.shape)}-{list(t.stride())}",
)
def test_parts_are_the_elements_in_order_and_none_is_large(tensor: torch.Tensor, dtype: torch.dtype) -> None:
    found = [part.copy() for part in parts.host_parts(tensor, dtype)]
    assert all(0 < part.nbytes <= parts.PART_BYTES for part in found)
    joined = torch.frombuffer(bytearray(b"".join(part.tobytes() for part in found)) or bytearray(1), dtype=torch.uint8)
    expected = tensor.to(dtype).contiguous().reshape(-1).view(torch.uint8)
    assert torch.equal(joined[: expected.numel()], expected) and sum(p.nbytes for p in found) == expected.numel()


def test_safetensors_reads_what_was_written(tmp_path: Path) -> None:
    tensors = {
        "b.codes": torch.arange(300, dtype=torch.uint8),
        "a.m": torch.randn(30, 20),
        "a.count": torch.tensor(7),
        "c.m": torch.randn(50).to(torch.bfloat16),
        "z.none": torch.empty(0),
        "t.v": torch.randn(9, 40).t(),
    }
    write_tensors(tmp_path / "state", tensors)
    found = load_file(tmp_path / "state")
    assert found.keys() == tensors.keys()
    assert all(found[name].dtype == t.dtype and torch.equal(found[name], t) for name, t in tensors.items())


def test_no_second_copy_is_held_while_it_is_written(tmp_path: Path) -> None:
    """`safetensors.torch.save_file` holds the bytes of all tensors."""
    code = (
        "import resource, sys, torch; from pathlib import Path\n"
        "from apollod.trainer.checkpoints.write_checkpoint import write_tensors\n"
        "state = {str(i): torch.ones(8 << 20) for i in range(6)}\n"  # 192 MiB
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10\n"
        "before = peak(); write_tensors(Path(sys.argv[1]), state); print(peak() - before)"
    )
    code_of_exit, printed = said(code, str(tmp_path / "s"))
    assert code_of_exit == 0, printed
    assert int(printed) < 32 << 20
    assert (tmp_path / "s").stat().st_size > 192 << 20
