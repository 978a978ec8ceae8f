"""The process that receives weights: what a foreign trainer broadcasts over gloo arrives byte for byte, and nothing
that a trainer does wrong leaves a file, or harms another process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import msgspec
import pytest
from support.effort import cases
from support.fork_server import Forked, fork_server
from support.listening import addresses_of
from support.weight_sender import Plan, Sent

from apollod.adapters.weight_receiver import WeightReceiver
from apollod.errors import ReceiveFailed
from apollod.store.model_files import read_header
from apollod.testing.daemon import free_port
from apollod.wire.receiver_messages import Announced, Join, Layout, Received

DTYPES = ("bfloat16", "float32", "float16")
MANY = tuple(
    Sent(f"layers.{number}.weight", DTYPES[number % 3], [(3, 5), (7,), (), (1, 0, 4), (33, 17)][number % 5])
    for number in range(60)
)
"""Every dtype in every shape: odd sizes, so that later elements lie at any byte, a scalar, no element at all."""
SMALL = (Sent("a", "float32", (4,)), Sent("b", "bfloat16", (5,)), Sent("c", "float16", (6,)))
PACKED = 700  # bytes: some buffers of MANY hold several tensors, some one


def announced(tensors: Sequence[Sent]) -> list[Announced]:
    return [Announced(one.name, one.dtype, one.shape) for one in tensors]


def parts(tensors: Sequence[Sent], layout: Layout) -> tuple[tuple[Sent, ...], ...]:
    """What a sender broadcasts together."""
    if layout == "each":
        return tuple((one,) for one in tensors)
    made: list[list[Sent]] = [[]]
    for one in tensors:
        if layout == "packed" and sum(len(each.data()) for each in made[-1]) > PACKED:
            made.append([])
        made[-1].append(one)
    return tuple(map(tuple, made))


def has_listener(port: int) -> bool:
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(row[3] == "0A" and row[1].endswith(f":{port:04X}") for row in rows)


@contextmanager
def sender(plan: Plan) -> Iterator[Forked]:
    """A trainer at work, once its store takes connections: tests with short limits wait for nothing else."""
    process = fork_server().start(["-m", "support.weight_sender", msgspec.json.encode(plan).decode()], os.environ)
    try:
        until = time.monotonic() + 60
        while not has_listener(plan.port) and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait(20)


class Hand:
    """A receiver that the tests of this file share, driven from outside its event loop."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, log: Path) -> None:
        self.portal, self.log, self.receiver = portal, log, WeightReceiver(log)

    @contextmanager
    def joined(self, plan: Plan, timeout_s: float = 60.0) -> Iterator[Forked]:
        """In a group with a sender."""
        style = "nested" if plan.stock else "plain"
        with sender(plan) as process:
            wanted = Join("127.0.0.1", plan.port, 1, 2, plan.group, style, timeout_s)  # type: ignore[arg-type]
            self.portal.call(self.receiver.join, wanted)
            yield process

    def receive(self, file: Path, tensors: Sequence[Sent], layout: Layout = "each", packed_bytes: int = 0) -> Received:
        return self.portal.call(self.receiver.receive, file, announced(tensors), layout, packed_bytes)


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hand]:
    with anyio.from_thread.start_blocking_portal() as portal:
        made = Hand(portal, tmp_path_factory.mktemp("log") / "receiver.log")
        try:
            yield made
        finally:
            portal.call(made.receiver.close)


def assert_holds(file: Path, sent: Sequence[Sent], received: Received) -> None:
    """The file has these tensors, and the answer is true of it."""
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    data, header = file.read_bytes(), read_header(file.parent, file.name)
    stored = {one.name: (one.dtype, one.shape, data[one.start : one.start + one.bytes]) for one in header.tensors}
    assert stored == {one.name: (one.dtype, one.shape, one.data()) for one in sent}
    assert received.bytes == sum(len(one.data()) for one in sent)
    assert received.digest == blake2b(data, digest_size=32).hexdigest()


@pytest.mark.parametrize(
    ("layout", "stock"),
    cases(
        [("each", False), ("packed", True), ("bucket", False)], [("each", True), ("packed", False), ("bucket", True)]
    ),
)
def test_what_is_sent_is_what_the_file_holds(hand: Hand, tmp_path: Path, layout: Layout, stock: bool) -> None:
    plan = Plan(free_port(), "weights", parts(MANY, layout), stock=stock, as_bytes=layout != "each")
    assert layout != "packed" or 3 < len(plan.parts) < len(MANY)
    with hand.joined(plan):
        received = hand.receive(tmp_path / "new", MANY, layout, PACKED if layout == "packed" else 0)
    assert_holds(tmp_path / "new", MANY, received)


def test_a_group_gives_one_file_after_the_other(hand: Hand, tmp_path: Path) -> None:
    with hand.joined(Plan(free_port(), "weights", (*parts(SMALL, "each"), *parts(MANY, "each")))):
        hand.receive(tmp_path / "new", SMALL)
        assert_holds(tmp_path / "new", MANY, hand.receive(tmp_path / "new", MANY))


def refused(hand: Hand, file: Path, tensors: Sequence[Sent], layout: Layout = "each", packed_bytes: int = 0) -> str:
    """The error as one line; nothing may be left of the file, and the group is gone."""
    with pytest.raises(ReceiveFailed) as error:
        hand.receive(file, tensors, layout, packed_bytes)
    assert list(file.parent.iterdir()) == []
    with pytest.raises(ReceiveFailed, match="there is no group"):
        hand.receive(file, SMALL)
    return error.value.line()


def test_a_sender_of_more_bytes_than_announced_ends_only_the_receiver(hand: Hand, tmp_path: Path) -> None:
    before = (Sent("a", "float32", (3,)), *SMALL[1:])
    with hand.joined(Plan(free_port(), "weights", parts(SMALL, "each"))):
        error = refused(hand, tmp_path / "new", before)
    assert "aborted" in error and "the sender sent more bytes than announced" in error
    with hand.joined(Plan(free_port(), "weights", parts(SMALL, "each"))):
        assert_holds(tmp_path / "new", SMALL, hand.receive(tmp_path / "new", SMALL))


@pytest.mark.parametrize(
    ("layout", "dtype"),
    cases([*product(["each"], DTYPES), ("bucket", "bfloat16")], [("bucket", "float32"), ("bucket", "float16")]),
)
def test_a_sender_of_fewer_bytes_than_announced_is_noticed(
    hand: Hand, tmp_path: Path, layout: Layout, dtype: str
) -> None:
    """The buffer has held good weights before, of which nothing may be taken for what is missing."""
    good, short, more = (Sent("w", dtype, (size,)) for size in (8, 7, 8))
    plan = Plan(free_port(), "weights", ((good,), (short,)), as_bytes=layout != "each")
    with hand.joined(plan):
        hand.receive(tmp_path / "new", [good], layout)
        (tmp_path / "new").unlink()
        error = refused(hand, tmp_path / "new", [more], layout)
    assert error.startswith("w holds NaN or infinity") and "the sender sent fewer bytes than it announced" in error


def test_the_buffer_forgets_the_broadcast_before(hand: Hand, tmp_path: Path) -> None:
    sent = (Sent("a", "float32", (8,)), Sent("b", "float32", (7,)))
    with hand.joined(Plan(free_port(), "weights", parts(sent, "each"))):
        error = refused(hand, tmp_path / "new", [sent[0], Sent("b", "float32", (8,))])
    assert error.startswith("b holds NaN or infinity")


@pytest.mark.parametrize(
    ("layout", "dtype", "bad"),
    cases(
        [*product(["packed"], DTYPES, ["nan", "inf"]), ("each", "bfloat16", "nan"), ("bucket", "float32", "inf")],
        [one for one in product(["each", "bucket"], DTYPES, ["nan", "inf"])
         if one not in {("each", "bfloat16", "nan"), ("bucket", "float32", "inf")}],
    ),
)  # fmt: skip
def test_a_bad_value_is_refused_by_the_name_of_its_tensor(
    hand: Hand, tmp_path: Path, layout: Layout, dtype: str, bad: Any
) -> None:
    sent = (*SMALL, Sent("culprit", dtype, (33,), bad), Sent("last", "float32", (2,)))
    with hand.joined(Plan(free_port(), "weights", parts(sent, layout), as_bytes=layout != "each")):
        error = refused(hand, tmp_path / "new", sent, layout, PACKED if layout == "packed" else 0)
    assert error.startswith("culprit holds NaN or infinity")


def test_a_sender_that_is_killed_is_noticed_at_once(hand: Hand, tmp_path: Path) -> None:
    with hand.joined(Plan(free_port(), "weights", parts(SMALL[:2], "each"), dies=True)):
        began = time.monotonic()
        error = refused(hand, tmp_path / "new", SMALL)
    assert "the connection to the sender broke" in error and time.monotonic() - began < 30


def test_a_sender_that_is_killed_in_the_middle_of_a_tensor_is_noticed(hand: Hand, tmp_path: Path) -> None:
    large = (Sent("large", "float32", (1 << 23,)),)  # more than sockets hold: the sender waits in the middle of it
    with hand.joined(Plan(free_port(), "weights", parts(large, "each"))) as process:
        pid = pid_of(hand.receiver)
        os.kill(pid, signal.SIGSTOP)
        asked = hand.portal.start_task_soon(hand.receiver.receive, tmp_path / "new", announced(large), "each")
        time.sleep(1.0)
        process.kill()
        process.wait(20)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(ReceiveFailed, match="the connection to the sender broke"):
            asked.result(60)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_sender_is_waited_for_as_long_as_the_group_says(hand: Hand, tmp_path: Path) -> None:
    with hand.joined(Plan(free_port(), "weights", parts(SMALL[:2], "each")), timeout_s=2.0):
        began = time.monotonic()
        error = refused(hand, tmp_path / "new", SMALL)
    assert "did not broadcast all tensors within 2 s" in error and 2 <= time.monotonic() - began < 20


def test_all_broadcasts_together_have_as_long_as_the_group_says(hand: Hand, tmp_path: Path) -> None:
    """None of them alone takes that long."""
    with hand.joined(Plan(free_port(), "weights", parts(MANY[:10], "each"), pause_s=1.0), timeout_s=3.0):
        assert "did not broadcast all tensors within 3 s" in refused(hand, tmp_path / "new", MANY[:10])


def test_a_store_that_nobody_hosts_is_given_up(hand: Hand) -> None:
    with socket.socket() as nobody:  # bound, so that no other program gets the port, and it refuses connections
        nobody.bind(("127.0.0.1", port := free_port()))
        wanted = Join("127.0.0.1", port, 1, 2, "weights", "plain", 1.0)
        with pytest.raises(ReceiveFailed, match=r"no store of a group answers at 127\.0\.0\.1"):
            hand.portal.call(hand.receiver.join, wanted)


def test_a_silent_program_in_place_of_a_store_is_given_up(hand: Hand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wanted = Join("127.0.0.1", silent.getsockname()[1], 1, 2, "weights", "plain", 1.0)
        began = time.monotonic()
        with pytest.raises(ReceiveFailed, match=r"no store of a group answers at 127\.0\.0\.1:\d+ \(not within 1 s\)"):
            hand.portal.call(hand.receiver.join, wanted)
        assert time.monotonic() - began < 40


@pytest.mark.parametrize("stock", [False, True], ids=["plain", "nested"])
def test_a_group_of_another_style_does_not_become_complete(hand: Hand, stock: bool) -> None:
    plan = Plan(free_port(), "weights", (), stock=stock)
    with sender(plan), pytest.raises(ReceiveFailed, match=r"the group weights at .* did not become complete"):
        wanted = Join("127.0.0.1", plan.port, 1, 2, "weights", "plain" if stock else "nested", 3.0)
        hand.portal.call(hand.receiver.join, wanted)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"port": 1023}, "port of the store is 1023"), ({"port": 65536}, "port of the store is 65536"),
        ({"rank": 0}, "rank 0 of 2"), ({"rank": 2}, "rank 2 of 2"), ({"timeout_s": 0.0}, "time limit is 0.0 s"),
        ({"timeout_s": 1e9}, "time limit is"), ({"group": ""}, "group's name has 0 characters"),
        ({"address": ""}, "has no address"),
    ],
)  # fmt: skip
def test_a_group_that_cannot_be_is_not_looked_for(hand: Hand, changed: dict[str, Any], error: str) -> None:
    wanted = Join("127.0.0.1", 12345, 1, 2, "weights", "plain", 5.0)
    with pytest.raises(ReceiveFailed, match=error):
        hand.portal.call(hand.receiver.join, msgspec.structs.replace(wanted, **changed))


def test_what_libraries_print_is_no_answer(hand: Hand) -> None:
    """Gloo prints to standard output: it is the log."""
    with hand.joined(Plan(free_port(), "weights", ())):
        streams = [os.readlink(f"/proc/{pid_of(hand.receiver)}/fd/{number}") for number in (1, 2)]
    assert streams == [str(hand.log), str(hand.log)]


def test_it_listens_on_loopback_for_a_loopback_sender(hand: Hand) -> None:
    with hand.joined(Plan(free_port(), "weights", ())):
        assert addresses_of(pid_of(hand.receiver)) == {"127.0.0.1"}


def pid_of(receiver: WeightReceiver) -> int:
    assert receiver._child is not None
    return receiver._child.pid


def test_a_directory_that_is_not_there_is_named(hand: Hand, tmp_path: Path) -> None:
    with hand.joined(Plan(free_port(), "weights", parts(SMALL, "each"))):
        with pytest.raises(ReceiveFailed, match=r"gone/new cannot be written: No such file"):
            hand.receive(tmp_path / "gone" / "new", SMALL)


def test_a_broadcast_that_no_memory_holds_is_refused(hand: Hand, tmp_path: Path) -> None:
    with hand.joined(Plan(free_port(), "weights", ())):
        error = refused(hand, tmp_path / "new", [Sent("w", "float32", (1 << 59,))])
    assert f"there is no memory for a broadcast of {1 << 61} bytes" in error


def test_it_is_the_first_that_a_full_memory_ends(hand: Hand) -> None:
    with hand.joined(Plan(free_port(), "weights", ())):
        assert Path(f"/proc/{pid_of(hand.receiver)}/oom_score_adj").read_text() == "1000\n"


# --- processes of their own -----------------------------------------------------------------------------------------


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(pid: int) -> bool:
    """True once the process is gone, within ten seconds."""
    until = time.monotonic() + 10
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not lives(pid)


def mapped(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def test_announcements_are_refused_before_there_is_a_group_and_without_torch(tmp_path: Path) -> None:
    async def main() -> None:
        receiver = WeightReceiver(tmp_path / "log")
        for wrong, error in [
            ([Announced("w", "int8", (1,))], "w is announced as 'int8'"),
            ([Announced("w", "float32", (1,)), Announced("w", "float16", (1,))], "w is announced twice"),
        ]:
            with pytest.raises(ReceiveFailed, match=error):
                await receiver.receive(tmp_path / "new", wrong, "each")
        pid = pid_of(receiver)
        assert not any("libtorch" in line for line in mapped(pid))
        await receiver.close()
        assert not lives(pid)

    anyio.run(main)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


async def receiving(receiver: WeightReceiver, plan: Plan, file: Path, timeout_s: float) -> None:
    """Receive what the sender never sends."""
    await receiver.join(Join("127.0.0.1", plan.port, 1, 2, plan.group, "plain", timeout_s))
    await receiver.receive(file, announced(SMALL), "each")


async def written(directory: Path) -> None:
    """Wait until a file is being written."""
    with anyio.fail_after(60):
        while not os.listdir(directory):
            await anyio.sleep(0.02)


def in_the_middle(tmp_path: Path, act: Callable[[WeightReceiver, anyio.CancelScope], None]) -> BaseException | None:
    """What a receive ends with to which `act` happens while the sender is silent, and look at what is left."""
    directory = tmp_path / "spool"
    directory.mkdir()
    plan = Plan(free_port(), "weights", parts(SMALL[:1], "each"))
    found: list[BaseException] = []

    async def main() -> None:
        receiver = WeightReceiver(tmp_path / "log", grace_s=2.0)
        scope = anyio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    await receiving(receiver, plan, directory / "new", 4.0 if act is stop else 30.0)
            except ReceiveFailed as error:
                found.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await written(directory)
            pid = pid_of(receiver)
            act(receiver, scope)
        assert not lives(pid) and list(directory.iterdir()) == []
        await receiver.close()

    with sender(plan):
        anyio.run(main)
    return found[0] if found else None


def stop(receiver: WeightReceiver, scope: anyio.CancelScope) -> None:
    os.kill(pid_of(receiver), signal.SIGSTOP)


def kill(receiver: WeightReceiver, scope: anyio.CancelScope) -> None:
    os.kill(pid_of(receiver), signal.SIGKILL)


def cancel(receiver: WeightReceiver, scope: anyio.CancelScope) -> None:
    scope.cancel()


def test_a_process_that_hangs_is_killed(tmp_path: Path) -> None:
    error = in_the_middle(tmp_path, stop)
    assert error is not None and "did not answer within 6 s and was killed" in str(error)


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    error = in_the_middle(tmp_path, kill)
    assert error is not None and "ended (killed by SIGKILL)" in str(error)


def test_a_cancelled_receive_kills_the_process(tmp_path: Path) -> None:
    assert in_the_middle(tmp_path, cancel) is None


def test_it_ends_with_its_input() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "apollod.receiver"], input=b"", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"") and time.monotonic() - began < 30


PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-m", "apollod.receiver"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    env={**os.environ, "APOLLOD_PARENT_PID": str(os.getpid())},
)
child.stdin.write(b"{}\\n")
child.stdin.flush()
child.stdout.readline()
os.set_inheritable(child.stdin.fileno(), True)
subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(60)
"""
"""A parent whose child's input stays open when it dies: another process has it, too."""


def test_it_dies_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        parent.wait()
        assert ended(pid)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
