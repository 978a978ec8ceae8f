"""Forward passes at the lowest priority, which end as soon as the trainer is asked for anything else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


class GaveWay(Exception):
    """Something else was asked for in the middle of a forward pass."""


@contextmanager
def giving_way(model: PreTrainedModel, wanted_elsewhere: Callable[[], bool] | None) -> Iterator[None]:
    """Have a forward pass raise GaveWay before whichever module comes next once somebody waits."""
    if wanted_elsewhere is None:
        yield
        return

    def look(*_: object) -> None:
        if wanted_elsewhere():
            raise GaveWay

    hooks = [module.register_forward_pre_hook(look) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
