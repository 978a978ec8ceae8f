"""Forward passes at the lowest priority, which end as soon as the trainer has other work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


class GaveWay(Exception):
    """A forward pass was interrupted for other work."""


@contextmanager
def giving_way(model: PreTrainedModel, wanted_elsewhere: Callable[[], bool] | None) -> Iterator[None]:
    """Make a forward pass raise GaveWay before its next module once other work waits."""
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
