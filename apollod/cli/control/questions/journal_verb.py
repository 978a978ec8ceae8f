"""`apollod ctl journal verify`: was anything changed?  And `archive`, see `cli.control.archiving`."""

import argparse
import json
import re
from typing import Any

from apollod.adapters.journal import journal_reader, verification
from apollod.adapters.journal.archive import misfit
from apollod.cli.control import archiving, ctl
from apollod.core.events import JournalContinued
from apollod.errors import ConfigError

HASH_DIGITS, HASH_DIGITS_MIN = 64, 16
SEARCH_S = 600.0


def add(parser: argparse.ArgumentParser) -> None:
    verify, archive = ctl.actions(
        parser,
        (
            "verify",
            "check the hash chain over every event, what is derived from them, and what the quality guard needs",
            _run,
        ),
        (
            "archive",
            "put the journal away as a proved copy, and begin another one at the newest checkpoint; the daemon has to "
            "be stopped",
            archiving.run,
        ),
    )
    archiving.arguments(archive)
    verify.add_argument(
        "--archive", metavar="FILE", help="fail unless the journal goes on where this one, its archive, ends"
    )
    verify.add_argument(
        "--expect", metavar="HASH", help="fail unless this hash, noted earlier, is the head or an event before it"
    )
    ctl.of_a_copy(verify)


def _run(args: argparse.Namespace) -> int:
    """What it prints was walked along: a newest event that came meanwhile is not proclaimed."""
    path, expect = ctl.journal_path(args), _pinned(args.expect)
    chain = journal_reader.proved(path)
    last, bad, head = chain.seq, chain.broken, chain.hash.hex() if chain.seq else ""
    found = _seq_of(path, expect, last) if expect else None
    derived = verification.derived_damage(path) if bad is None else None  # of a broken journal the events come first
    compared = verification.reference_damage(path) if bad is None and derived is None else None
    begun = journal_reader.continued(path) if chain.seq else None
    unfit = misfit(path, args.archive) if args.archive and bad is None else ""
    if begun is not None and expect and begun.head_hash.startswith(expect):
        found = 0
    ok = bad is None and derived is None and compared is None and not unfit and (not expect or found is not None)
    if args.json:
        answer: dict[str, Any] = {"schema_version": 1, "ok": ok, "first_bad": bad, "events": last, "head_hash": head}
        if expect:
            answer["expected"] = None if found is None else {"seq": found, "after": last - found}
        answer["derived"] = derived and derived.line()
        answer["references"] = compared and compared.line()
        if begun is not None:
            answer["archive"] = {"path": begun.archive, "events": begun.events, "head_hash": begun.head_hash}
        if args.archive:
            answer["misfit"] = unfit
        print(json.dumps(answer))
        return 0 if ok else 1
    if bad is not None:
        print(f"broken at event {bad}: it was edited, is missing or out of place")
    elif derived is not None:
        print(f"the events are good: {last}, head {head}\nwhat is derived from them is damaged: {derived.line()}")
    elif compared is not None:
        print(f"the events are good: {last}, head {head}\n{compared.line()}")
    else:
        print(f"ok: {last} events, head {head}")
    if begun is not None and bad is None:
        print(_begun(begun, args.archive, unfit))
    if expect and found is None:
        print(
            f"not expected: {expect} is the hash of no event{'' if bad is None else f' before {bad}'}; this is "
            f"another history{'' if begun is None else f', or it is in the archive {begun.archive}'}"
        )
    elif found == 0:
        print(f"as expected: {expect} is the head of the archive, {last} events came after")
    elif found is not None:
        after = f"event {found}, {last - found} {'' if bad is None else 'good '}events came after"
        print(f"as expected: {expect} is {'the head' if found == last and bad is None else after}")
    return 0 if ok else 1


def _begun(begun: JournalContinued, archive: str | None, unfit: str) -> str:
    """Where the journal begins, and whether the archive that was given is the one."""
    link = f"it begins at step {begun.step}, after {begun.events} events with head {begun.head_hash}"
    if archive is None:
        return f"{link}; --archive FILE checks that they are in {begun.archive}"
    return f"the archive {archive} does not fit: {unfit}" if unfit else f"{link}, which are in {archive}"


def _pinned(text: str | None) -> str:
    """A hash to look for; `status` shows the first 16 digits of one, which are enough."""
    expect = (text or "").strip().lower()
    if text is not None and not re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS_MIN},{HASH_DIGITS}}}", expect):
        raise ConfigError(
            f"{text!r} is no hash of an event",
            f"give {HASH_DIGITS} hex digits, or at least the first {HASH_DIGITS_MIN}",
        )
    return expect


def _seq_of(path: str, expect: str, last: int) -> int | None:
    """The event with this hash on the part of the chain that was walked along and is good."""
    sql = (
        f"SELECT seq FROM events WHERE seq <= {last} AND substr(hex(hash), 1, {len(expect)}) = '{expect.upper()}' "
        "ORDER BY seq LIMIT 1"
    )
    found = journal_reader.query(path, sql, seconds=SEARCH_S).rows
    return int(found[0][0]) if found else None
