"""The process that replays a window for a search: started with the first replay, used for all replays of the search,
and ended with the search, with the daemon, or on any error."""

import shutil
from functools import partial

import anyio
import anyio.to_thread
import msgspec
import structlog
from anyio.abc import TaskGroup

from apollod.adapters.system.processes import ChildProcess, describe_exit
from apollod.supervisor.child_commands import replays_environment
from apollod.supervisor.config import Config
from apollod.wire.pipe_messages import SEARCH_ROOM, Outcome, Window, Without

log = structlog.get_logger()

MODULE = "apollod.cli.window_process"


class _Search:
    """A process, and the incident and window it was started for."""

    def __init__(self, child: ChildProcess, of: tuple[int, Window], config: Config) -> None:
        self.child, self.of = child, of
        self.room = config.state_dir / f"{SEARCH_ROOM}.tmp-{child.pid}"
        self.ends = anyio.CancelScope()
        self.gone = anyio.Event()
        self.exit_code = 0


class WindowReplays:
    """One process at most, for one window."""

    def __init__(self) -> None:
        self._search: _Search | None = None

    async def ask(self, config: Config, tasks: TaskGroup, of: tuple[int, Window], asked: Without) -> Outcome:
        """Run one replay of the window of an incident. The process lives in `tasks`. Raises OSError if it cannot be
        started. Cancelled at any time, it ends the process."""
        search = self._search
        if search is not None and (search.of != of or search.ends.cancel_called):
            self.end()
            await search.gone.wait()
            search = None
        begun = search
        search = begun or await self._begin(config, tasks, of)
        try:
            if begun is None:
                await search.child.say(msgspec.json.encode(of[1]))
            outcome = await _answer(search, asked)
        except BaseException:
            search.ends.cancel()
            raise
        if outcome.error:
            search.ends.cancel()
            await search.gone.wait()
        if outcome.note:
            log.warning("quality.replay_differs", number=outcome.number, reason=outcome.note)
        return outcome

    def end(self) -> None:
        """End the process and remove its files, without waiting."""
        if self._search is not None:
            self._search.ends.cancel()

    async def _begin(self, config: Config, tasks: TaskGroup, of: tuple[int, Window]) -> _Search:
        with anyio.CancelScope(shield=True):  # so that a started process is always ended
            child = await ChildProcess.spawn(
                MODULE, (), replays_environment(config), config.state_dir / "log" / "search.log", talks=True
            )
            search = self._search = _Search(child, of, config)
            tasks.start_soon(self._live, search)
        return search

    async def _live(self, search: _Search) -> None:
        """Wait until the process ends or is to be ended. Its directory is removed here as well, since a killed process
        leaves it behind."""
        try:
            with search.ends:
                await search.child.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await search.child.stop(0.0)
                search.exit_code = await search.child.wait()
                await search.child.hang_up()
                await anyio.to_thread.run_sync(partial(shutil.rmtree, search.room, ignore_errors=True))
                if self._search is search:
                    self._search = None
                search.gone.set()


async def _answer(search: _Search, asked: Without) -> Outcome:
    await search.child.say(msgspec.json.encode(asked))
    line = await search.child.hear()
    if line is not None:
        try:
            return msgspec.json.decode(line, type=Outcome)
        except msgspec.MsgspecError as error:
            return Outcome(asked.number, error=f"the process that replays answered nonsense: {error}")
    await search.gone.wait()
    ended = f"the process that replays ended: {describe_exit(search.exit_code)}"
    words = search.child.last_error()
    return Outcome(asked.number, error=f"{ended}: {words}" if words else ended)
