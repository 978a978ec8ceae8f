"""What outside trainers send, as long as the daemon lives: groups of processes that were joined, and which tensors of
the update under way were received."""

from collections.abc import Sequence

from apollod.adapters.update_files import Received


class Receiving:
    """One update is received at a time, and one call about it."""

    def __init__(self) -> None:
        self._update = 0
        self._targets: frozenset[str] = frozenset()
        self._busy = False

    def begin(self, update: int) -> None:
        """A new update begins: nothing was received."""
        self._update, self._targets = update, frozenset()

    def add(self, update: int, found: Sequence[Received]) -> None:
        """Note the tensors of these files."""
        if update == self._update:
            self._targets = self._targets.union(*(one.targets for one in found))

    def targets(self, update: int) -> frozenset[str]:
        """Names in the model directory of all tensors that were received for this update."""
        return self._targets if update == self._update else frozenset()

    def enter(self) -> bool:
        """Begin to receive; False if another call does."""
        if self._busy:
            return False
        self._busy = True
        return True

    def leave(self) -> None:
        """End what `enter` began."""
        self._busy = False

    def groups(self) -> list[str]:
        """Names of the groups that were joined."""
        return []
