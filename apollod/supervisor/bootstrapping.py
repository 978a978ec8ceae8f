"""Reads the source of a bootstrap, beside all other sources and one batch at a time.

It keeps no state of its own: the request is in the state, the progress in the positions of its sources. So it resumes
after a restart.
"""

import os
import stat
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from apollod.adapters.checks import problem as check_problem
from apollod.adapters.sources.quarantine import Quarantine
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.unpack import obstruction
from apollod.adapters.sources.whole_source import Part, WholeSource
from apollod.core import events as ev
from apollod.core import inputs as inp
from apollod.core.kernel.composing import composed
from apollod.core.rules.bootstrap import ReadSoFar
from apollod.errors import ApolloError, DreamCheckFailed, SourceRefused
from apollod.supervisor import sources
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.tested_answers import checked
from apollod.supervisor.loop import Loop
from apollod.supervisor.sections import WatchSection

PASSES = 2
"""passes over the source: the last turn of a session in a database is read in the second, when locks may be gone as
well"""


class Bootstrapper:
    """Reads the source that the state names."""

    def __init__(self, config: Config, loop: Loop) -> None:
        self._config = config
        self._loop = loop
        self.so_far: ReadSoFar | None = None
        """None: nothing is being read"""

    async def run(self) -> None:
        """Run as long as the daemon lives."""
        loop = self._loop
        while True:
            current = loop.state.bootstrap.current
            if loop.state.daemon.stopping or current is None or current.phase != "reading":
                await loop.changed()
                continue
            ran = await self._read(current.request)
            self.so_far = None
            if ran is not None:
                await loop.submit(ran)

    def _wanted(self, request: ev.BootstrapRequested) -> bool:
        """True if the request is still to be read."""
        state = self._loop.state
        current = state.bootstrap.current
        reading = current is not None and current.phase == "reading" and current.request is request
        return reading and not state.daemon.stopping

    async def _read(self, request: ev.BootstrapRequested) -> inp.BootstrapRan | None:
        """Read all of it; None: the bootstrap or the daemon was stopped."""
        try:
            whole = await anyio.to_thread.run_sync(whole_source, self._config, request)
        except (OSError, ApolloError) as error:
            return inp.BootstrapRan(request, refused=why(error, request.path))
        with closing(whole):
            try:
                return await self._passes(whole, request)
            except DreamCheckFailed as error:
                return inp.BootstrapRan(request, refused=f"the check of {request.pattern} cannot be made: {error}")

    async def _passes(self, whole: WholeSource, request: ev.BootstrapRequested) -> inp.BootstrapRan | None:
        sizes: dict[str, int] = {}
        unread: dict[str, ev.Unread] = {}
        for _ in range(PASSES):
            try:
                parts = await anyio.to_thread.run_sync(whole.scan)
            except (OSError, SourceRefused) as error:
                return inp.BootstrapRan(request, refused=why(error, request.path))
            sizes |= {part.path: part.size for part in parts}
            unread = {}
            done = len(sizes) - len(parts), sum(sizes.values()) - sum(part.size for part in parts)
            for part in parts:
                self.so_far = ReadSoFar(done[0], len(sizes), done[1], sum(sizes.values()))
                try:
                    if not await self._read_part(whole, part, request):
                        return None
                except (OSError, SourceRefused) as error:
                    unread[part.path] = _unread(part.path, obstruction(error, part.path))
                done = done[0] + 1, done[1] + part.size
        unread |= {path: _unread(path, one) for path, one in whole.blocked().items()}
        return inp.BootstrapRan(
            request, len(sizes), sum(sizes.values()), tuple(unread[path] for path in sorted(unread))
        )  # fmt: skip

    async def _read_part(self, whole: WholeSource, part: Part, request: ev.BootstrapRequested) -> bool:
        """Read all of a file; False: no longer wanted."""
        positions, before = self._loop.state.intake.sources, self.so_far
        assert before is not None
        while self._wanted(request):
            batch = await anyio.to_thread.run_sync(whole.read_batch, part, positions)
            if batch is None:
                return True
            ready = await self._checked(batch, request)
            if ready is None:
                return False
            await self._loop.submit(inp.LinesRead(ready, frozenset()))
            if "#" not in batch.path:  # the position of a database counts records
                self.so_far = before._replace(bytes=before.bytes + min(batch.offset, part.size))
        return False

    async def _checked(self, batch: inp.Batch, request: ev.BootstrapRequested) -> inp.Batch | None:
        """Apply the check of the pattern to the batch, or mark it for the judge; None: no longer wanted. Raises
        DreamCheckFailed."""
        if request.check is None:
            return batch
        if request.judged:
            return msgspec.structs.replace(batch, judged=f"the judge says whether it shows {request.pattern}")
        return await checked(batch, request.check, lambda: self._wanted(request))


def section_of(request: ev.BootstrapRequested) -> WatchSection:
    """Its rules as a `[[watch]]` table. Raises ValueError for an invalid rule."""
    return composed(WatchSection, request, tier="direct" if request.tier == "direct" else "bulk")


def terms_of(config: Config, request: ev.BootstrapRequested) -> Terms:
    """Terms for reading it."""
    replace, terms = msgspec.structs.replace, sources.terms_of(config, section_of(request))
    stripping = replace(terms.rules.stripping, instruction=request.instruction)
    return replace(terms, rules=replace(terms.rules, stripping=stripping, surroundings=request.surroundings))


def whole_source(config: Config, request: ev.BootstrapRequested) -> WholeSource:
    """The source to read, by the rules of the request. Raises ApolloError."""
    return WholeSource(
        Path(request.path), request.mark, Quarantine(config.state_dir / "quarantine"),
        terms_of(config, request), request.format, config.state_dir, own=sources.own_logs(),
    )  # fmt: skip


def refused(config: Config, request: ev.BootstrapRequested) -> ApolloError | None:
    """Reason why this cannot be read; None: it can. Reads the disk."""
    path = Path(request.path)
    if (problem := sources.format_problem(request.format)) is not None:
        return SourceRefused(*problem)
    if request.check is not None and (unusable := check_problem(request.check)):
        return SourceRefused(f"{request.pattern}: {unusable}", "add the pattern again with a check that can be made")
    real = path.resolve()
    if real.is_relative_to(config.state_dir.resolve()):
        return SourceRefused(
            f"{path} lies in the state directory {config.state_dir}, where the daemon writes",
            "name the directory in which the agents write",
        )
    try:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in sources.own_logs():
            return SourceRefused(f"{path} is where this daemon writes its own log", "name the logs of agents")
        if stat.S_ISDIR(status.st_mode):
            os.scandir(path).close()
        elif stat.S_ISREG(status.st_mode) and not path.is_symlink():
            open(path, "rb").close()
        else:
            return SourceRefused(f"{path} is no file and no directory", "name a file, a directory or a database")
    except FileNotFoundError:
        return SourceRefused(f"{path} does not exist", "name a file, a directory or a database")
    except OSError as error:
        return SourceRefused(*_said(obstruction(error, str(path)), str(path)))
    return None


def overlapping(config: Config, request: ev.BootstrapRequested) -> list[str]:
    """Watched paths, and the inbox, that share files with this one."""
    own = Path(request.path).resolve()
    places = [config.inbox_dir, *(section.directory for section in config.watch)]
    return [str(one) for one in places if own.is_relative_to(one.resolve()) or one.resolve().is_relative_to(own)]


def why(error: Exception, path: str) -> str:
    """The error on one line."""
    return "; ".join(part for part in _said(obstruction(error, path), path) if part)


def _said(one: inp.Obstruction, path: str) -> tuple[str, str]:
    return (one.reason if path in one.reason else f"{path} cannot be read: {one.reason}"), one.hint


def _unread(path: str, one: inp.Obstruction) -> ev.Unread:
    return ev.Unread(path, one.reason, one.hint)
