"""Random files for an inbox: names, kinds, sizes, times and contents, a function of the seed."""

import gzip
import json
import os
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import zstandard

from apollod.testing.daemon import chat_line
from apollod.wire.records import parse_line

FUTURE = 32503680000  # the year 3000
TIMES = (0, -1, -(2**31), 1, 2**31 - 1, 2**32, FUTURE)
SUFFIXES = (".jsonl", ".jsonl", ".jsonl.gz", ".jsonl.zst")
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip


def noise(chance: random.Random) -> str:
    """A new line without anything to be learned."""
    return chat_line(f"{chance.getrandbits(96):x}?", f"{chance.getrandbits(96):x}.")


class Thrower:
    """Throws files into one inbox. `good`: id of every line that has to be taken exactly once; `perhaps`: of those that
    may be taken, since their file vanished or changed. `mebibytes`: size of the largest file, which is sparse. `line`
    draws a good line; names of files are numbered from `number` on."""

    def __init__(
        self, inbox: Path, beside: Path, mebibytes: int, line: Callable[[random.Random], str] = noise, number: int = 0
    ) -> None:
        self._line = line
        self.good: dict[str, bytes] = {}
        self.perhaps: dict[str, bytes] = {}
        self._inbox, self._beside = os.fsencode(inbox), os.fsencode(beside)
        self._size = mebibytes << 20
        self._number = number
        self._threads: list[threading.Thread] = []
        self._files: list[bytes] = []
        beside.mkdir(exist_ok=True)

    KINDS = (
        "whole", "whole", "named", "named", "mixed", "mixed", "appended", "torn", "grown", "moved", "emptied",
        "removed", "closed", "hard_link", "link", "dangling", "endless", "directory", "pipe", "socket", "damaged",
        "bomb", "sparse", "nested", "long_line",
    )  # fmt: skip

    def throw(self, chance: random.Random) -> str:
        """Throw one random thing; returns its kind."""
        return self.throw_kind(chance.choice(self.KINDS), chance)

    def throw_kind(self, kind: str, chance: random.Random) -> str:
        """Throw one thing of a kind of `KINDS`."""
        self._number += 1
        getattr(self, f"_{kind}")(chance)
        return kind

    def settle(self) -> None:
        """Finish all writing, and make every file readable."""
        for thread in self._threads:
            thread.join()
        self._threads = []
        for path in self._files:
            if os.path.isfile(path) and not os.path.islink(path):
                os.chmod(path, 0o600)

    # --- names and contents -----------------------------------------------------------------------------------------

    def lines(self, chance: random.Random, count: int) -> list[bytes]:
        """New good lines."""
        found = [f"{self._line(chance)}\n".encode() for _ in range(count)]
        self.good |= {parse_line(line).id: line for line in found}
        return found

    def bad(self, chance: random.Random) -> bytes:
        """A line that is not an example."""
        return chance.choice([
            b"", b" ", b"\0" * chance.randrange(1, 5000), chance.randbytes(chance.randrange(200)).replace(b"\n", b""),
            b"\xff\xfe" + b'{"text": "x"}', b"[" * chance.choice([10, 2000, 100_000]), b'{"messages":' * 3000,
            b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b'{"messages": []}', b'{"text": "\\ud800"}', b'{"text": "\xff"}',
            b'{"text": 1e999}', b'{"prompt": "a", "completion": null}', b"null", b"1" * 5000,
            b'"%s"' % (b"\\u0000" * 500),
            b'{"messages": [{"role": "user", "content": %s}]}' % (b"[" * 5000 + b"]" * 5000),
            b'{"type": "user", "sessionId": 1, "message": {"role": []}}', b"\xef\xbb\xbf{}", b"{}\r",
        ]) + b"\n"  # fmt: skip

    def name(self, chance: random.Random) -> bytes:
        """A unique name of a file that the inbox reads, without its suffix."""
        stem = chance.choice([
            b"-rf", b"--", b"plain", b"PLAIN", b"new\nline", b"tab\t", b"\xff\xfe\x80", b"caf\xe9", b"'\"$(reboot)`",
            b"%s%n",
            b"\xe2\x80\xae", b"\x1b[31m", b"x" * 240, b"\xff" * 240, b"~", b"*", b" ", b"a;b", b"\\",
            b"\xf0\x9f\x98\x80" * 50,
        ])  # fmt: skip
        return b"%s%d" % (stem, self._number)

    def _put(self, name: bytes, content: bytes) -> bytes:
        """Rename a new file into the inbox; returns its path."""
        part, path = os.path.join(self._beside, b"part"), os.path.join(self._inbox, name)
        with open(part, "wb") as file:
            file.write(content)
        os.rename(part, path)
        self._files.append(path)
        return path

    def _number_name(self, suffix: str = ".jsonl") -> bytes:
        return b"f%06d%s" % (self._number, suffix.encode())

    def _forget(self, lines: list[bytes]) -> None:
        """Move lines to `perhaps`."""
        for line in lines:
            self.good.pop(parse_line(line).id, None)
            self.perhaps[parse_line(line).id] = line

    # --- kinds --------------------------------------------------------------------------------------------------------

    def _whole(self, chance: random.Random) -> None:
        suffix = chance.choice(SUFFIXES)
        content = PACKERS[suffix](b"".join(self.lines(chance, chance.randint(1, 20))))
        path = self._put(self._number_name(suffix), content)
        if chance.random() < 0.5:
            os.utime(path, (chance.choice(TIMES),) * 2)

    def _named(self, chance: random.Random) -> None:
        suffix = chance.choice(SUFFIXES)
        content = PACKERS[suffix](b"".join(self.lines(chance, 2)))
        self._put(self.name(chance)[: 255 - len(suffix)] + suffix.encode(), content)

    def _mixed(self, chance: random.Random) -> None:
        lines = [*self.lines(chance, 3), *(self.bad(chance) for _ in range(chance.randint(1, 6)))]
        chance.shuffle(lines)
        self._put(self._number_name(), b"".join(lines))

    def _appended(self, chance: random.Random) -> None:
        path = os.path.join(self._inbox, b"grows%d.jsonl" % chance.randrange(3))
        with open(path, "ab") as file:
            file.write(b"".join(self.lines(chance, 2)))

    def _torn(self, chance: random.Random) -> None:
        """A file whose last line is completed later."""
        (line,) = self.lines(chance, 1)
        path = self._put(self._number_name(), line[: len(line) // 2])

        def end() -> None:
            with open(path, "ab") as file:
                file.write(line[len(line) // 2 :])

        timer = threading.Timer(chance.uniform(0.0, 1.0), end)
        timer.start()
        self._threads.append(timer)

    def _grown(self, chance: random.Random) -> None:
        """A file that grows by a few bytes at a time."""
        content, path = b"".join(self.lines(chance, 3)), os.path.join(self._inbox, self._number_name())

        def write() -> None:
            with open(path, "ab", buffering=0) as file:
                for at in range(0, len(content), 7):
                    file.write(content[at : at + 7])

        self._threads.append(threading.Thread(target=write))
        self._threads[-1].start()

    def _moved(self, chance: random.Random) -> None:
        """A file that is renamed to capitals."""
        path = self._put(self._number_name(), b"".join(self.lines(chance, 2)))
        self._files[-1] = os.path.join(self._inbox, self._number_name().upper().replace(b"JSONL", b"jsonl"))
        os.rename(path, self._files[-1])

    def _emptied(self, chance: random.Random) -> None:
        """A file that is emptied, and written anew with other lines."""
        lines = self.lines(chance, 3)
        path = self._put(self._number_name(), b"".join(lines))
        self._forget(lines)
        os.truncate(path, chance.choice([0, 10]))
        with open(path, "r+b") as file:
            file.write(b"".join(self.lines(chance, 4)))

    def _removed(self, chance: random.Random) -> None:
        lines = self.lines(chance, 200)
        path = self._put(self._number_name(), b"".join(lines))
        self._forget(lines)
        timer = threading.Timer(chance.uniform(0.0, 0.8), os.unlink, [path])
        timer.start()
        self._threads.append(timer)

    def _closed(self, chance: random.Random) -> None:
        """A file that only root can read, until `settle`."""
        os.chmod(self._put(self._number_name(), b"".join(self.lines(chance, 2))), 0)

    def _hard_link(self, chance: random.Random) -> None:
        path = self._put(self._number_name(), b"".join(self.lines(chance, 2)))
        os.link(path, path.replace(b".jsonl", b"b.jsonl"))

    def _link(self, chance: random.Random) -> None:
        content, target = b"".join(self.lines(chance, 2)), os.path.join(self._beside, self._number_name())
        with open(target, "wb") as file:
            file.write(content)
        self._forget(content.splitlines(keepends=True))
        os.symlink(target, os.path.join(self._inbox, self._number_name()))

    def _dangling(self, chance: random.Random) -> None:
        os.symlink(chance.choice([b"/nonexistent", b".", b"..", self._number_name(), b"x" * 300]),
                   os.path.join(self._inbox, self._number_name()))  # fmt: skip

    def _endless(self, chance: random.Random) -> None:
        target = chance.choice([b"/dev/zero", b"/dev/urandom", b"/dev/tty", b"/proc/self/mem"])
        os.symlink(target, os.path.join(self._inbox, self._number_name()))

    def _directory(self, chance: random.Random) -> None:
        os.makedirs(os.path.join(self._inbox, self._number_name(), b"deep" * 20), exist_ok=True)

    def _pipe(self, chance: random.Random) -> None:
        os.mkfifo(os.path.join(self._inbox, self._number_name()))

    def _socket(self, chance: random.Random) -> None:
        with socket.socket(socket.AF_UNIX) as end:
            at = os.open(self._inbox, os.O_PATH)
            end.bind(f"/proc/self/fd/{at}/{self._number_name().decode()}")
            os.close(at)

    def _damaged(self, chance: random.Random) -> None:
        suffix = chance.choice([".jsonl.gz", ".jsonl.zst"])
        content = bytearray(PACKERS[suffix](json.dumps({"text": "x" * 3000}).encode() + b"\n"))
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        cut = chance.choice([len(content), len(content) // 2, 3, 0])
        path = self._put(self._number_name(suffix), chance.choice([bytes(content[:cut]), chance.randbytes(500)]))
        os.utime(path, (chance.choice([*TIMES, 10**9]),) * 2)

    def _bomb(self, chance: random.Random) -> None:
        suffix = chance.choice([".jsonl.gz", ".jsonl.zst"])
        much = chance.choice([b"\0" * (32 << 20), b"[" * (8 << 20), b"\n" * (4 << 20), b"{}\n" * 2000])
        self._put(self._number_name(suffix), PACKERS[suffix](much + b"\n" + b"".join(self.lines(chance, 1))))

    def _sparse(self, chance: random.Random) -> None:
        """A file with a hole, and a line after it."""
        path = self._put(self._number_name(), b"")
        with open(path, "r+b") as file:
            file.truncate(chance.choice([4096, 2 << 20, self._size]))
            file.seek(0, os.SEEK_END)
            file.write(b"\n" + b"".join(self.lines(chance, 1)))

    def _nested(self, chance: random.Random) -> None:
        deep = chance.choice([500, 2000, 100_000])
        inner = b"[" * deep + b"]" * deep
        line = b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": %s}]}\n' % inner
        self._put(self._number_name(), line + b"".join(self.lines(chance, 1)))

    def _long_line(self, chance: random.Random) -> None:
        size = chance.choice([(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
        line = b'{"text": "' + b"a" * size + b'"}\n'
        self._put(self._number_name(), line + b"".join(self.lines(chance, 1)))
