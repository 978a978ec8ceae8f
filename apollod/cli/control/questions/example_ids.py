"""An example as a person names it, by its id or the beginning of it, and what became of it."""

import re

from apollod.adapters.journal.journal_reader import continued
from apollod.cli.control.questions import rows
from apollod.core.events import JournalContinued
from apollod.errors import ApolloError, ConfigError

PREFIX_MIN, ID_DIGITS = 6, 32
NAMED_MAX = 5  # examples named when a prefix is not unique
_WHERE = "`apollod ctl example list` has them"


def state_of(path: str, id_: str) -> str:
    """What became of an example that was accepted."""
    ((state,),) = rows.tuples(path, f"SELECT state FROM examples WHERE id = '{id_}'")
    return str(state)


def was_known(path: str, id_: str) -> bool:
    """True if it was not learned because the model knows it: the first look of its lesson found that, or its last
    step, which wrote nothing."""
    one_of = f"EXISTS (SELECT 1 FROM json_each(body, '$.examples') WHERE value = '{id_}')"
    among = f"body ->> '$.example' = '{id_}' OR {one_of}"
    kinds = "kind IN ('step.completed', 'example.looked')"
    sql = f"SELECT body ->> '$.known' FROM events WHERE {kinds} AND ({among}) ORDER BY seq DESC LIMIT 1"
    return any(known for (known,) in rows.tuples(path, sql))


def is_id(text: str) -> bool:
    """Could it be the id of an example, or the beginning of one?"""
    return re.fullmatch(rf"[0-9a-f]{{{PREFIX_MIN},{ID_DIGITS}}}", text) is not None


def known(path: str, prefix: str) -> str:
    """The one example whose id begins so, empty where none does; raises ApolloError where several do, and where
    only the archive has it."""
    sql = f"SELECT id FROM known_examples WHERE id >= '{prefix}' AND id < '{prefix}g' ORDER BY id LIMIT {NAMED_MAX + 1}"
    ids = [id_ for (id_,) in rows.tuples(path, sql)]
    if len(ids) > 1:
        more = " ..." if len(ids) > NAMED_MAX else ""
        raise ApolloError(
            f"several examples begin with {prefix}: {' '.join(ids[:NAMED_MAX])}{more}", "give more digits"
        )
    if ids and (begun := _carried(path, str(ids[0]))):
        raise ApolloError(
            f"what became of {ids[0]} is not in this journal, which begins at step {begun.step}",
            f"ask its archive: --file {begun.archive}",
        )
    return str(ids[0]) if ids else ""


def _carried(path: str, id_: str) -> JournalContinued | None:
    """The archive that has the example, unless the journal has it."""
    sql = f"SELECT 1 FROM known_examples JOIN events USING (seq) WHERE id = '{id_}' AND kind = 'example.carried'"
    return continued(path) if rows.tuples(path, sql) else None


def unknown(path: str, prefix: str) -> ApolloError:
    """What to say where none begins so."""
    ((count,),) = rows.tuples(path, "SELECT count(*) FROM known_examples")
    among = f"the journal knows {count} examples" if count else "no example was accepted yet"
    return ApolloError(f"no example begins with {prefix}: {among}", _WHERE)


def meant(path: str, what: str) -> str:
    """The one example that begins so; raises ConfigError for what is no id, ApolloError for none or several."""
    text = what.lower()
    if not is_id(text):
        raise ConfigError(f"{what!r} is no example", f"give its id or at least {PREFIX_MIN} digits of it; {_WHERE}")
    if not (id_ := known(path, text)):
        raise unknown(path, text)
    return id_
