"""Tasks that run beside the loop, by key."""

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup


class UnderWay:
    """Work in the background. A key that is under way is not begun a second time; different keys run in parallel."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._running: dict[str, tuple[str, anyio.CancelScope]] = {}

    def begin(self, key: str, work: Callable[[], Awaitable[object]], group: str = "", limit: int = 0) -> bool:
        """Start `work`. Returns False, without starting it, if its key is under way, or `limit` (0: no limit) tasks of
        its group are."""
        if key in self._running or (limit and self.count(group) >= limit):
            return False
        scope = anyio.CancelScope()
        self._running[key] = (group, scope)
        self._tasks.start_soon(self._run, key, work, scope, name=key)
        return True

    def cancel(self, key: str) -> None:
        """End the work with this key, if there is any. The key is free once the work has cleaned up."""
        if key in self._running:
            self._running[key][1].cancel()

    def cancel_group(self, group: str) -> None:
        """End all work of this group, as `cancel` does."""
        for of, scope in self._running.values():
            if of == group:
                scope.cancel()

    def count(self, group: str) -> int:
        """The number of tasks of this group that are under way."""
        return sum(of == group for of, _ in self._running.values())

    async def _run(self, key: str, work: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await work()
        finally:
            del self._running[key]
