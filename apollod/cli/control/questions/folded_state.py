"""The state that a journal says, for questions that are asked without its daemon."""

from apollod.adapters.journal import journal_reader
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire.state_snapshot import fold_code, load_state


def folded_state(path: str) -> State:
    """The fold of all events of the journal in this file, from its newest snapshot on."""
    snapshot = journal_reader.snapshot(path, fold_code())
    state = load_state(snapshot.state) if snapshot is not None else State()
    events = journal_reader.recorded(path, *((snapshot.seq, snapshot.hash) if snapshot is not None else ()))
    for item, _ in events:
        fold(state, item)
    return state
