"""Parameters of all kinds, and gradients that depend on name and step only."""

import torch

SHAPES = {  # right, left, square, just wide enough; then what takes Adam at rank 8: vector, convolution, small matrix
    "up.weight": (48, 32),
    "down.weight": (24, 64),
    "q.weight": (32, 32),
    "edge.weight": (8, 32),
    "norm.weight": (33,),
    "conv1d.weight": (10, 1, 4),
    "small.weight": (4, 32),
}

Parameters = dict[str, torch.nn.Parameter]


def model(
    dtype: torch.dtype = torch.bfloat16, seed: int = 0, shapes: dict[str, tuple[int, ...]] = SHAPES
) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.nn.Parameter((torch.randn(shape, generator=generator) * 0.05).to(dtype))
        for name, shape in shapes.items()
    }


def give_gradients(
    parameters: Parameters, step: int, scale: float = 1e-2, shapes: dict[str, tuple[int, ...]] = SHAPES
) -> None:
    generator = torch.Generator().manual_seed(1000 + step)
    for name, shape in shapes.items():  # in one order, whatever the order of the model
        grad = torch.randn(shape, generator=generator) * scale
        if name in parameters:
            parameters[name].grad = grad.to(parameters[name].dtype)


def same_bits(left: Parameters, right: Parameters) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
