"""Measures the cost of a durable event, relative to its unavoidable fsync and to alternatives on the same SQLite.

Every variant runs in every round, one after the other and each round in another order, because a disk changes its pace
within minutes; figures are medians over rounds, ratios medians of the ratios within a round. Everything is
synchronous=FULL in WAL mode with events of the same size. Events are made beforehand. Peers get theirs encoded, too,
and compute no hash.

Two goals are ratios to the minimum for this schema in the same run: a durable append at 64 writers to a bare group
commit into the same table, and the fold with its chain check to decoding the same bodies alone, in memory, once with
Python's `json` and once with msgspec. The fold also has to read and hash the rows; SQLite's time for reading alone is
printed beside it (`read_rows_per_s`). Multiples of the alternatives are figures.

`--large` measures growth up to 2 million events instead of 200,000. `--dir` chooses the disk.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import random
import shutil
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from hashlib import blake2b
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any
from unittest import mock

import aiosqlite
import msgspec

from apollod.adapters.journal import journal_reader, known_examples, row_batch
from apollod.adapters.journal.journal_file import reading
from apollod.adapters.journal.writer import Journal
from apollod.core import events as ev
from apollod.core.fold import fold
from apollod.core.state import State
from apollod.wire.event_codec import GENESIS, encode_body
from benchmarks import report
from benchmarks.daemon import Daemon

ROUNDS, ROUND_S, FLOOR_S = 9, 0.5, 0.2
WRITERS = 64
KEPT = 20  # kept checkpoints, the default
SMALL, MIDDLE, LARGE = 10_000, 200_000, 2_000_000
FILL_EVENTS = 1000  # events per append while filling
GROW_EVENTS, GROW_ROUNDS = 4 * known_examples.RECENT_MAX, 5  # events a turn, enough to index as many ids as arrive
READ_EVENTS = 200_000  # all events of the journal without --large
LEAST = {"group_commit_to_bare_group_commit": 0.65, "fold_to_json_decoding": 0.5, "fold_to_msgspec_decoding": 0.5}
AT = 1_700_000_000_000_000_000
PEER_TABLE = """
    CREATE TABLE events (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
    CREATE INDEX events_kind ON events (kind)
"""
PEER_INSERT = "INSERT INTO events (at_ns, kind, body) VALUES (?, ?, ?)"

Rate = Callable[[], Awaitable[float]]
"""Runs a variant for one turn; events per second."""


def main() -> None:
    """Measure and print."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--large", action="store_true", help="growth up to 2 million events")
    parser.add_argument("--dir", help="directory on the disk to measure (default: a temporary one)")
    asyncio.run(_measure(parser.parse_args()))


async def _measure(args: argparse.Namespace) -> None:
    missing = [] if importlib.util.find_spec("eventsourcing") else ["eventsourcing"]
    with tempfile.TemporaryDirectory(prefix="apollod-bench-", dir=args.dir) as directory:
        root = Path(directory)
        append = await _append_rates(root, not missing)
        growth = await _growth_rates(root, LARGE if args.large else MIDDLE)
        read = await _read_rates(root / "large.db")
        starts = _starts(root)
    measured = append | growth | read
    figures = {f"{name}_per_s": report.median(rates) for name, rates in measured.items()} | starts
    figures["fsync_floor_ms"] = 1000 / figures["fsync_floor_per_s"]
    pairs = [
        ("group_commit_to_bare_group_commit", append, "journal_64", "bare_group_commit_64"),
        ("fold_to_json_decoding", read, "fold_with_chain_check", "json_decoding"),
        ("fold_to_msgspec_decoding", read, "fold_with_chain_check", "msgspec_decoding"),
        ("fold_to_reading_rows", read, "fold_with_chain_check", "read_rows"),
        ("group_commit_to_aiosqlite", append, "journal_64", "aiosqlite_64"),
        ("bare_group_commit_to_aiosqlite", append, "bare_group_commit_64", "aiosqlite_64"),
        ("single_writer_to_aiosqlite", append, "journal_1", "aiosqlite_1"),
        ("single_writer_to_fsync_floor", append, "journal_1", "fsync_floor"),
        ("append_cost_large_to_small", growth, "append_small", "append_large"),
    ]
    if not missing:
        pairs.append(("group_commit_to_eventsourcing", append, "journal_64", "eventsourcing"))
    ratios = {name: report.median([a / b for a, b in zip(of[x], of[y], strict=True)]) for name, of, x, y in pairs}
    chain = report.median([1 - a / b for a, b in zip(append["journal_64"], append["journal_64_no_chain"], strict=True)])
    ratios["hash_chain_share_of_append"] = chain
    goals = {
        **{name: report.goal(ratios[name], least, False) for name, least in LEAST.items()},
        "start_with_snapshot_s": report.goal(figures["start_with_snapshot_s"], 3.0, True),
        "hash_chain_share_of_append": report.goal(chain, 0.2, True),
        "append_cost_large_to_small": report.goal(ratios["append_cost_large_to_small"], 1.1, True),
    }
    report.report("journal", figures, ratios, goals, threads=1, missing=missing, as_json=args.json)


async def _rounds(variants: dict[str, Rate], rounds: int) -> dict[str, list[float]]:
    """Every variant in every round, in changing order."""
    rates: dict[str, list[float]] = {name: [] for name in variants}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(variants), len(variants)):
            rates[name].append(await variants[name]())
    return rates


# --- appending ----------------------------------------------------------------------------------------------------


async def _append_rates(root: Path, with_eventsourcing: bool) -> dict[str, list[float]]:
    async with AsyncExitStack() as stack:
        chained, single, bare = [await _open(stack, root / f"{name}.db") for name in ("chained", "single", "bare")]

        async def no_chain() -> float:
            with mock.patch.object(row_batch, "chain", lambda *_: bytes(32)):
                return await _append(bare, WRITERS, _steps())

        bare_loop = await _bare_group_commit(stack, root / "bare_group.db")
        peer, peer_1 = [await _aiosqlite(stack, root / f"{name}.db") for name in ("peer", "peer1")]
        variants: dict[str, Rate] = {
            "journal_64": lambda: _append(chained, WRITERS, _steps()),
            "journal_64_no_chain": no_chain,
            "bare_group_commit_64": bare_loop,
            "journal_1": lambda: _append(single, 1, _steps()),
            "aiosqlite_64": lambda: peer(WRITERS),
            "aiosqlite_1": lambda: peer_1(1),
            "fsync_floor": lambda: _fsync_floor(root / "floor"),
        }
        if with_eventsourcing:
            variants["eventsourcing"] = _eventsourcing(root / "eventsourcing.db")
        return await _rounds(variants, ROUNDS)


async def _open(stack: AsyncExitStack, path: Path) -> Journal:
    journal = await Journal.open(path)
    stack.push_async_callback(journal.close)
    return journal


async def _append(journal: Journal, writers: int, events: Iterator[ev.Event]) -> float:
    """Tasks that each append one event after the other."""
    return await _loop(writers, lambda: journal.append([next(events)], AT))


async def _loop(writers: int, one: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    counts = await asyncio.gather(*[_until(begin + ROUND_S, one) for _ in range(writers)])
    return sum(counts) / (time.perf_counter() - begin)


async def _until(end: float, one: Callable[[], Awaitable[object]]) -> int:
    count = 0
    while time.perf_counter() < end:
        await one()
        count += 1
    return count


async def _peer(stack: AsyncExitStack, path: Path) -> aiosqlite.Connection:
    db = await stack.enter_async_context(aiosqlite.connect(path))
    await db.execute("PRAGMA journal_mode = WAL")
    await db.execute("PRAGMA synchronous = FULL")
    await db.executescript(PEER_TABLE)
    return db


def _peer_row() -> tuple[int, str, str]:
    return AT, "step.completed", encode_body(next(_steps())).decode()


async def _aiosqlite(stack: AsyncExitStack, path: Path) -> Callable[[int], Awaitable[float]]:
    """The common approach: one connection, one commit for each event."""
    db, row, lock = await _peer(stack, path), _peer_row(), asyncio.Lock()

    async def one() -> None:
        async with lock:
            await db.execute(PEER_INSERT, row)
            await db.commit()

    return lambda writers: _loop(writers, one)


async def _bare_group_commit(stack: AsyncExitStack, path: Path) -> Rate:
    """The cost in Python of a group commit into this table: a finished row for each writer, one statement for all, a
    future each. No event is encoded, checked, chained or returned."""
    await (await Journal.open(path)).close()
    db = await stack.enter_async_context(aiosqlite.connect(path, isolation_level=None))
    await db.execute("PRAGMA synchronous = FULL")
    await db.execute("PRAGMA wal_autocheckpoint = 4000")
    _, kind, body = _peer_row()
    waiting: list[asyncio.Future[None]] = []
    arrived, loop, seq, hash_ = asyncio.Event(), asyncio.get_running_loop(), count(1), bytearray(32)

    async def write() -> None:
        while True:
            await arrived.wait()
            arrived.clear()
            batch = waiting.copy()
            waiting.clear()
            values: list[Any] = []
            for _ in batch:
                values += next(seq), AT, kind, 1, "1", body, hash_, hash_
            row = f"({', '.join('?' * 8)})"
            await db.execute(f"INSERT INTO events VALUES {', '.join([row] * len(batch))}", values)
            for done in batch:
                done.set_result(None)

    async def one() -> None:
        waiting.append(done := loop.create_future())
        arrived.set()
        await done

    writer = asyncio.create_task(write())
    stack.callback(writer.cancel)
    return lambda: _loop(WRITERS, one)


def _eventsourcing(path: Path) -> Rate:
    """The recorder of `eventsourcing`. It allows one writer at a time, so it is called from one thread, where it is
    fastest."""
    from eventsourcing.persistence import StoredEvent  # a peer, not a dependency
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path)))
    recorder.create_table()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL, the default of this SQLite
    db.close()
    body, originator, version = encode_body(next(_steps())), uuid.uuid4(), iter(range(1 << 40))

    def turn() -> float:
        begin, count = time.perf_counter(), 0
        while time.perf_counter() < begin + ROUND_S:
            recorder.insert_events([StoredEvent(originator, next(version), "step.completed", body)])
            count += 1
        return count / (time.perf_counter() - begin)

    return lambda: asyncio.to_thread(turn)


async def _fsync_floor(path: Path) -> float:
    """Rate of appending and fsyncing 4 KiB: the limit of the disk."""
    page, count = os.urandom(4096), 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    begin = time.perf_counter()
    while time.perf_counter() < begin + FLOOR_S:
        os.write(fd, page)
        os.fsync(fd)
        count += 1
    elapsed = time.perf_counter() - begin
    os.close(fd)
    return count / elapsed


# --- growing, reading ---------------------------------------------------------------------------------------------


async def _growth_rates(root: Path, large: int) -> dict[str, list[float]]:
    """A daemon's events appended to a short and to a long journal, over one whole turn of the index of examples."""
    for name, size in (("small", SMALL), ("large", large)):
        journal = await Journal.open(root / f"{name}.db")
        life = _life(1)
        while journal.head[0] < size:
            await journal.append(list(islice(life, FILL_EVENTS)), AT)
        await journal.close()
    variants: dict[str, Rate] = {
        "append_small": lambda: _grow(shutil.copy(root / "small.db", root / "copy.db"), SMALL),
        "append_large": lambda: _grow(root / "large.db", large),
    }
    return await _rounds(variants, GROW_ROUNDS)


async def _grow(path: Path, first: int) -> float:
    """Append events one by one from concurrent writers; examples have new ids."""
    journal = await Journal.open(path)
    events = _life(first + journal.head[0])

    async def some() -> None:
        for _ in range(GROW_EVENTS // WRITERS):
            await journal.append([next(events)], AT)

    begin = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(WRITERS)])
    elapsed = time.perf_counter() - begin
    await journal.close()
    return GROW_EVENTS / elapsed


async def _read_rates(path: Path) -> dict[str, list[float]]:
    """A start without a snapshot: read, check the chain, decode, fold; `journal verify`, which only checks; and
    separately reading the rows, and decoding their bodies in memory. Events per second, of the first READ_EVENTS."""
    with reading(path) as db:
        db.text_factory = bytes
        rows = db.execute("SELECT kind, body FROM events ORDER BY seq LIMIT ?", (READ_EVENTS,)).fetchall()
    of_kind = {kind.encode(): msgspec.json.Decoder(cls).decode for kind, cls in ev.KINDS.items()}
    plain = [(json.loads, body) for _, body in rows]
    typed = [(of_kind[kind], body) for kind, body in rows]

    def folded() -> int:
        state = State()
        for recorded, _ in islice(journal_reader.recorded(path), READ_EVENTS):
            fold(state, recorded)
        return state.seq

    def checked() -> int:
        return sum(map(len, journal_reader.chained(path, 0, GENESIS, READ_EVENTS)))

    def read() -> int:
        with reading(path) as db:
            db.text_factory = bytes
            return sum(1 for _ in db.execute(f"{journal_reader.SELECT} ORDER BY seq LIMIT ?", (READ_EVENTS,)))

    def decoded(bodies: list[tuple[Callable[[bytes], Any], bytes]]) -> int:
        for decode, body in bodies:
            decode(body)
        return len(bodies)

    def rate(of: Callable[[], int]) -> Rate:
        async def turn() -> float:
            begin = time.perf_counter()
            return of() / (time.perf_counter() - begin)

        return turn

    variants = {
        "fold_with_chain_check": rate(folded),
        "verify": rate(checked),
        "read_rows": rate(read),
        "json_decoding": rate(lambda: decoded(plain)),
        "msgspec_decoding": rate(lambda: decoded(typed)),
    }
    return await _rounds(variants, ROUNDS)


def _starts(root: Path) -> dict[str, float]:
    """Seconds until the real daemon answers on the long journal: folding everything, and from the snapshot of the first
    start."""
    (root / "life" / "state").mkdir(parents=True)
    shutil.copy(root / "large.db", root / "life" / "state" / "journal.db")
    daemon, seconds = Daemon(root / "life", root / "no-model"), []
    for _ in range(2):
        began = time.perf_counter()
        daemon.start()
        daemon.wait(lambda _: True, "to answer", poll_s=0.01)
        seconds.append(time.perf_counter() - began)
        daemon.stop()
    return {"start_without_snapshot_s": seconds[0], "start_with_snapshot_s": seconds[1]}


# --- events -------------------------------------------------------------------------------------------------------


def _steps() -> Iterator[ev.Event]:
    """Events made beforehand, like the peers' bodies."""
    return cycle([_completed(step, _id(step)) for step in range(1, 1000)])


def _life(first: int) -> Iterator[ev.Event]:
    """The events of a daemon: four for each example, now and then a checkpoint."""
    for number in count(first):
        id_ = _id(number)
        yield _accepted(number)
        yield ev.ExampleEncoded(example=id_, tokens=412, targets=97, cut=0, digest=id_)
        yield ev.StepStarted(step=number, parent=number - 1, example=id_, digest=id_, lr=1e-5, window=1)
        yield _completed(number, id_)
        if number % 100 == 0:
            yield ev.CheckpointCommitted(
                step=number, path=f"/c/{number}", fingerprint=f"{number:016x}", bytes=1 << 30, seconds=3.5
            )
            if number > 100 * KEPT:
                yield ev.CheckpointRemoved(step=number - 100 * KEPT, path=f"/c/{number - 100 * KEPT}")


def _accepted(number: int) -> ev.Event:
    record = msgspec.Raw(
        b'{"messages":[{"role":"user","content":"%0100d"},{"role":"assistant","content":"yes"}]}' % number
    )
    return ev.ExampleAccepted(example=_id(number), record=record, source="2049-1234-5678abcd", line=number)


def _completed(step: int, example: str) -> ev.Event:
    return ev.StepCompleted(
        step=step,
        parent=step - 1,
        example=example,
        applied=True,
        loss=1.2345678,
        lr=1e-5,
        grad_norm=0.7654321,
        update_norm=0.0123456,
        tokens=412,
        targets=97,
        skipped_zero=0,
        skipped_nonfinite=0,
        fingerprint=f"{step:016x}",
        seconds=0.8765432,
    )


def _id(number: int) -> str:
    return blake2b(b"%d" % number, digest_size=16).hexdigest()


if __name__ == "__main__":
    main()
