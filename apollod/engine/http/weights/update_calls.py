"""The update of the weights that callers have begun, one at a time: what a dialect may ask of the supervisor next.

The supervisor decides and undoes; it answers each request by itself. What it cannot know is known here: whose update it
is (a call of one dialect must not commit the other's), how it was begun, and that a part of it failed before the
supervisor saw it, such as a body that could not be read. Nothing of an update is committed after a part of it failed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from apollod.engine.http.versions import Names
from apollod.engine.http.weights.call_errors import UpdateRefused
from apollod.engine.http.weights.call_rate import JOINS, UPDATES, CallRate
from apollod.errors import ApolloError
from apollod.explain import line_of
from apollod.wire import control_messages as msg

logger = logging.getLogger("vllm.apollod")

SHORT_S, LONG_S = 60.0, 3600.0
"""limits of a supervisor's answer: what it knows, and what a trainer or a step takes part in"""
AGAIN_S = 5.0
Ask = Callable[[Any, float], Awaitable[msg.Answer]]
"""asks the supervisor: request and time limit"""
Kind = Literal["begun", "paused", "single"]
"""an update with an explicit begin and end; within a pause; of one call"""


class Update:
    """One update. `failed`: why nothing of it may be committed. `told`: its caller knows. `undone`: the supervisor does
    not hold it any more."""

    def __init__(self, dialect: msg.Dialect, kind: Kind) -> None:
        self.dialect = dialect
        self.kind = kind
        self.label = ""
        self.failed = ""
        self.told = False
        self.undone = False
        self.receiving = False
        self.committing = False


class Updates:
    """The update under way, if any. For one event loop."""

    def __init__(self, ask: Ask, names: Names) -> None:
        """`names`: where trainers' names of versions are kept for answers."""
        self._ask = ask
        self._names = names
        self._present: Update | None = None
        self._opening = False
        self.joins = CallRate("groups were joined", JOINS)
        self._begun = CallRate("updates were begun", UPDATES)

    def of(self, dialect: msg.Dialect) -> Update | None:
        """The update under way if it is of this dialect."""
        return self._present if self._present and self._present.dialect == dialect else None

    async def asked(self, message: Any, within_s: float) -> dict[str, Any]:
        """The body of the supervisor's reply; raises UpdateRefused with the whole of its refusal."""
        answer = await self._ask(message, within_s)
        if isinstance(answer, msg.Failure):
            raise UpdateRefused(answer.error, answer.hint)
        return dict(answer.body) if isinstance(answer.body, dict) else {}

    async def open(self, dialect: msg.Dialect, by: str, kind: Kind = "begun") -> Update:
        """Begin an update; the supervisor refuses a second one."""
        self._begun.take()
        if self._opening:
            raise UpdateRefused("an update is being begun by another request", "wait for its end")
        self._opening = True
        try:
            await self.asked(msg.UpdateOpenRequest(dialect, by), LONG_S)
        finally:
            self._opening = False
        self._present = Update(dialect, kind)
        return self._present

    @asynccontextmanager
    async def attempt(self, dialect: msg.Dialect) -> AsyncIterator[None]:
        """A call that adds to the update of this dialect. Its caller is told of whatever is raised in it, so that the
        update is undone first, and later refused."""
        update = self.of(dialect)
        try:
            yield
        except BaseException as error:
            if update is not None:
                await self._fail(update, line_of(error), told=True)
            raise

    async def receive(self, update: Update, message: Any) -> None:
        """Receive tensors; one call at a time. Within `attempt`."""
        if update.failed:
            raise UpdateRefused(f"the update failed before: {update.failed}", "begin another one")
        if update.receiving or update.committing:
            raise UpdateRefused("another request of this update is under way", "wait for its answer, then begin anew")
        update.receiving = True
        try:
            await self.asked(message, LONG_S)
        except UpdateRefused:
            update.undone = True
            raise
        finally:
            update.receiving = False
        if update.failed:  # meanwhile
            raise UpdateRefused(f"the update failed meanwhile: {update.failed}", "begin another one")

    async def commit(self, update: Update | None, label: str, begin: str, whole: bool = False) -> None:
        """Commit, which ends the update whatever the answer. `begin`: how an update is begun, for people."""
        if update is None:
            raise UpdateRefused("no update of the weights is under way", f"begin one by {begin}")
        if update.failed:
            self._forget(update)
            raise UpdateRefused(
                f"nothing is committed, the update failed: {update.failed}", f"begin another by {begin}"
            )
        if update.receiving or update.committing:
            raise UpdateRefused("another request of this update is under way", "wait for its answer")
        update.committing = True
        self._names.coming = label or update.label
        try:
            done = await self.asked(msg.UpdateCommitRequest(self._names.coming, whole), LONG_S)
            self._names.give(int(done.get("version", 0)), self._names.coming)
        finally:
            self._names.coming = ""
            self._forget(update)

    async def single(self, dialect: msg.Dialect, by: str, message: Any, label: str) -> None:
        """An update of one call: begin, receive, commit."""
        update = await self.open(dialect, by, "single")
        try:
            await self.receive(update, message)
            await self.commit(update, label, "the same call")
        except BaseException as error:
            await self._fail(update, line_of(error), told=True)
            raise
        finally:
            self._forget(update)

    async def begin_pause(self) -> None:
        """Forget the update of an earlier pause, undoing what it received: nobody has said that it was whole."""
        if (update := self._paused()) is not None:
            await self._fail(update, "generation was paused again before it was continued", told=True)
            if not update.receiving:
                self._forget(update)

    async def end_pause(self, reason: str) -> None:
        """Undo the update of a pause that ended without its trainer."""
        if (update := self._paused()) is not None:
            await self._fail(update, reason)

    async def continued(self) -> None:
        """Commit the update of a pause, which has to be whole. Raises UpdateRefused for what the caller believes to be
        committed and is not; a failure that it knows is no error any more."""
        update = self._paused()
        if update is None:
            return
        if update.receiving:
            await self._fail(update, "generation was continued before all tensors had come")
            raise UpdateRefused(f"nothing is committed: {update.failed}", "send all tensors before")
        if update.failed and update.told:
            self._forget(update)
            return
        await self.commit(update, "", "POST /pause_generation", whole=True)

    async def rename(self, label: str) -> None:
        """Give the served version the trainer's name, and the update under way as well."""
        self._names.give(await self._version(), label)
        if self._present is not None:
            self._present.label = label

    async def label(self) -> str:
        """The trainer's name of the served version; `default` if it has none."""
        return self._names.given(await self._version()) or "default"

    async def learn(self) -> None:
        """Learn the name that an engine before this one was told."""
        while True:
            try:
                await self._version()
                return
            except ApolloError as error:
                logger.info("apollod: the name of the weights is asked for again: %s", error.line())
                await asyncio.sleep(AGAIN_S)

    async def _version(self) -> int:
        """The version of the weights, whose name is learned, too, if the last update's trainer gave it one."""
        lease = await self.asked(msg.LeaseRequest(), SHORT_S)
        labelled = int(lease.get("labelled", 0))
        if not self._names.given(labelled):  # else it may have been renamed since
            self._names.give(labelled, str(lease.get("label", "")))
        return int(lease.get("version", 0))

    def _paused(self) -> Update | None:
        return self._present if self._present and self._present.kind == "paused" else None

    def _forget(self, update: Update) -> None:
        if self._present is update and not update.receiving:
            self._present = None

    async def _fail(self, update: Update, reason: str, told: bool = False) -> None:
        """Let nothing of the update be committed, and have it undone; what is being received is undone after that."""
        if update.committing:
            return
        update.failed, update.told = update.failed or reason, update.told or told
        if update.receiving or update.undone or self._present is not update:
            return
        update.undone = True
        try:
            await self.asked(msg.UpdateUndoRequest(update.failed, "http"), LONG_S)
        except ApolloError as error:
            logger.warning("apollod: the update could not be undone from here, its lease will end it: %s", error.line())
