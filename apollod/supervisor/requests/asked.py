"""The parts of the daemon that a handler may use, the input that a request becomes, and its answer."""

from typing import Any, NamedTuple, TypeVar

import msgspec

from apollod.adapters.journal.writer import Journal
from apollod.core.inputs import Input
from apollod.core.kernel.composing import composed
from apollod.supervisor.bootstrapping import Bootstrapper
from apollod.supervisor.children import Children
from apollod.supervisor.config import Config
from apollod.supervisor.dreaming.dreamer import Dreamer
from apollod.supervisor.journal_watch import Audit, GrowthWatch
from apollod.supervisor.judge import Judge
from apollod.supervisor.loop import Loop
from apollod.supervisor.receiving import Receiving
from apollod.wire import messages as msg

InputT = TypeVar("InputT", bound=Input)

USAGE = 2
"""exit code of a request that cannot be meant so; status 400 over HTTP"""


class Daemon(NamedTuple):
    """Parts of the running daemon."""

    config: Config
    loop: Loop
    journal: Journal
    children: Children
    audit: Audit
    growth: GrowthWatch
    bootstrapper: Bootstrapper
    judge: Judge | None = None
    """the judge for dreams"""
    dreamer: Dreamer | None = None
    """asks the imagination and the served model"""
    received: Receiving | None = None
    """what outside trainers send"""


def input_of(kind: type[InputT], request: msgspec.Struct, **own: Any) -> InputT:
    """The input of this kind with the request's fields of the same names, and those in `own`. `by` is "ctl" if the
    request names nobody."""
    return composed(kind, request, **{"by": getattr(request, "by", "") or "ctl", **own})


def reply(**fields: Any) -> msg.Reply:
    """An answer with these fields, after its `schema_version`."""
    return msg.Reply({"schema_version": 1, **fields})
