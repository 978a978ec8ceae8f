"""From recorded pieces to one strided view."""

import random

import pytest
import torch

from apollod.engine.load.layout import NotOneView, Piece, contiguous_stride, merge


def piece(source: torch.Tensor, target: torch.Tensor) -> Piece:
    """What the recorder writes down for `target.copy_(source)`."""
    return Piece(
        tuple(target.shape), source.storage_offset(), source.stride(), target.storage_offset(), target.stride()
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_cut_of_any_strided_view_is_found_again(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(0, 4)))
    source = torch.arange(torch.Size(shape).numel()).view(shape)
    order = rng.sample(range(len(shape)), len(shape))
    padded = [shape[d] + rng.randint(0, 2) for d in order]
    memory = torch.full((1000,), -1)
    whole = memory.as_strided(padded, contiguous_stride(padded), rng.randint(0, 9))
    target = whole.permute([order.index(d) for d in range(len(shape))])[tuple(slice(0, n) for n in shape)]
    cuts = [(source, target)]
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(cuts))
        a, b = cuts[at]
        wide = [d for d, n in enumerate(a.shape) if n > 1]
        if wide:
            d, n = (d := rng.choice(wide)), rng.randint(1, a.shape[d] - 1)
            cuts[at : at + 1] = [
                (a.narrow(d, 0, n), b.narrow(d, 0, n)),
                (a.narrow(d, n, a.size(d) - n), b.narrow(d, n, a.size(d) - n)),
            ]
    for a, b in cuts:
        b.copy_(a)
    try:
        offset, stride = merge([piece(a, b) for a, b in cuts], shape)
    except NotOneView as error:
        assert "too thin" in str(error)  # the one honest way out: single elements show no stride
        return
    assert torch.equal(memory.as_strided(shape, stride, offset), source)


def test_a_reshaped_copy_is_found() -> None:
    source, memory = torch.arange(24).view(4, 1, 6), torch.zeros(40, dtype=torch.int64)
    target = memory[8:32].view(2, 12)
    target.copy_(source.view(2, 12))
    offset, stride = merge([piece(source.view(2, 12), target)], (4, 1, 6))
    assert (offset, stride) == (8, (6, 6, 1))


def test_experts_one_by_one_show_their_distance() -> None:
    pieces = [Piece((2, 3), e * 6, (3, 1), 100 + e * 50, (3, 1)) for e in range(4)]
    assert merge(pieces, (4, 2, 3)) == (100, (50, 3, 1))


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([Piece((2,), 0, (1,), 0, (1,))], "2 of its 4"),
        ([Piece((3,), 0, (1,), 0, (1,)), Piece((1,), 1, (1,), 1, (1,))], "copied twice"),
        ([Piece((2,), 0, (1,), 0, (1,)), Piece((2,), 2, (1,), 3, (1,))], "one strided view"),
        ([Piece((2,), 0, (1,), 0, (1,)), Piece((2,), 2, (1,), 2, (2,))], "different strides"),
        ([Piece((2,), 0, (2,), 0, (1,)), Piece((2,), 1, (2,), 2, (1,))], "no slice"),  # even and odd elements
        ([Piece((4,), 0, (0,), 0, (1,))], "no slice"),  # one value broadcast
        ([Piece((4,), 3, (1,), 0, (1,))], "past the end"),
        ([Piece((4,), 0, (1,), 3, (-1,))], "backwards"),
    ],
)
def test_what_is_no_view_is_refused(pieces: list[Piece], reason: str) -> None:
    with pytest.raises(NotOneView, match=reason):
        merge(pieces, (4,))


def test_a_piece_recorded_twice_counts_once() -> None:
    assert merge([Piece((4,), 0, (1,), 7, (1,))] * 2, (4,)) == (7, (1,))
