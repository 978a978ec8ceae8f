"""A disk that loses power. Un-fsynced writes reach it or not, each 512-byte sector by itself; un-fsynced changes of a
directory as a prefix of what was done, or any of them in order (the seed says which)."""

import random
from contextlib import nullcontext
from pathlib import PurePosixPath

from apollod.store.disk import FileInfo

SECTOR = 512


class PowerLost(BaseException):
    """Everything in memory is gone."""


class _Inode:
    def __init__(self, number, data=b""):
        self.number, self.links, self.mtime = number, 1, 0
        self.durable, self.now = bytearray(data), bytearray(data)
        self.pending = []  # (offset, bytes) since the last fsync

    def crash(self, chance):
        keep = bytearray(self.durable)
        for offset, data in self.pending:
            position = offset
            while position < offset + len(data):
                end = min((position // SECTOR + 1) * SECTOR, offset + len(data))
                if chance.random() < 0.5:
                    keep.extend(bytes(max(0, end - len(keep))))
                    keep[position:end] = data[position - offset : end - offset]
                position = end
        self.durable, self.now, self.pending = keep, bytearray(keep), []


class SimDisk:
    """The protocol `Disk`. Power fails before operation `lose_power_at`; `fail_at` is answered with ENOSPC; counted
    from 1."""

    def __init__(self, seed, clones=False, direct=False):
        self._chance, self._clones, self._direct = random.Random(seed), clones, direct
        self._names, self._durable_names, self._pending = (
            {},
            {},
            [],
        )  # path -> inode; (directories, operation, arguments)
        self._fds, self._next, self._clock = {}, 1, 1
        self.operations, self.lose_power_at, self.fail_at, self.failed, self.log = 0, None, None, None, []
        self._dead = False

    # --- for the test ---

    def put(self, path, data, links=1):
        """A file that is there, durably."""
        inode = _Inode(self._number(), data)
        inode.links = links
        self._names[path] = self._durable_names[path] = inode
        return inode

    def content(self, path):
        return bytes(self._names[path].now)

    def paths(self):
        return sorted(path for path, inode in self._names.items() if inode is not None)

    def power_on(self):
        """After the loss: what reached the disk is what there is."""
        pending, self._pending = self._pending, []
        prefix = self._chance.random() < 0.5
        reached = self._chance.randint(0, len(pending))
        for at, (_, operation, *arguments) in enumerate(pending):
            if at < reached if prefix else self._chance.random() < 0.5:
                self._apply(self._durable_names, operation, arguments)
        self._names = dict(self._durable_names)
        self._drop_lost_directories()
        for inode in set(self._names.values()) - {None}:
            inode.crash(self._chance)
        self._fds, self._dead, self.operations, self.lose_power_at = {}, False, 0, None

    def _drop_lost_directories(self):
        for names in (self._names, self._durable_names):
            for path in list(names):
                parent = str(PurePosixPath(path).parent)
                if parent.endswith(".apollod") and parent not in names:
                    del names[path]

    def _number(self):
        self._next += 1
        return self._next

    def _count(self, name, path):
        if self._dead:
            raise PowerLost
        self.operations += 1
        self.log.append((name, PurePosixPath(str(path)).name))
        if self.operations == self.lose_power_at:
            self._dead = True
            raise PowerLost
        if self.operations == self.fail_at:
            self.failed = self.log[-1]
            raise OSError(28, "No space left on device", str(path))

    def _alter(self, directories, operation, *arguments):
        self._apply(self._names, operation, arguments)
        self._pending.append(({str(d) for d in directories}, operation, *arguments))

    @staticmethod
    def _apply(names, operation, arguments):
        if operation == "link":
            path, inode = arguments
            names[path] = inode
        elif operation == "unlink":
            names.pop(arguments[0], None)
        else:
            source, target, inode = arguments
            if names.get(source) is inode:
                del names[source]
            names[target] = inode

    # --- the protocol ---

    def stat(self, path):
        if self._dead:
            raise PowerLost
        inode = self._names.get(path)
        return FileInfo(len(inode.now), inode.mtime, inode.mtime, inode.number, inode.links) if inode else None

    def names(self, directory):
        files = [PurePosixPath(path) for path, inode in self._names.items() if inode]
        return sorted(path.name for path in files if str(path.parent) == directory)

    def make_dir(self, path):
        if path not in self._names:
            self._count("make_dir", path)
            self._alter([PurePosixPath(path).parent], "link", path, None)

    def open(self, path, write=False):
        if path not in self._names:
            raise FileNotFoundError(2, "No such file", path)
        return self._descriptor(path, self._names[path])

    def create(self, path, like=None):
        self._count("create", path)
        assert str(PurePosixPath(path).parent) in self._names or ".apollod" not in path, "no such directory"
        inode = _Inode(self._number())
        self._alter([PurePosixPath(path).parent], "link", path, inode)
        return self._descriptor(path, inode)

    def _descriptor(self, path, inode):
        if self._dead:
            raise PowerLost
        fd = self._number()
        self._fds[fd] = (path, inode)
        return fd

    def close(self, fd):
        self._fds.pop(fd, None)

    def read(self, fd, offset, count):
        if self._dead:
            raise PowerLost
        return bytes(self._fds[fd][1].now[offset : offset + count])

    def write(self, fd, offset, data):
        path, inode = self._fds[fd]
        data = bytes(memoryview(data).cast("B"))
        self._clock += 1
        inode.mtime = self._clock
        inode.now.extend(bytes(max(0, offset + len(data) - len(inode.now))))
        inode.now[offset : offset + len(data)] = data
        inode.pending.append((offset, data))
        self._count("write", path)  # afterwards: what power finds in flight may reach the disk in part

    def direct(self, fd, on):
        return self._direct and on

    def clone(self, source, target):
        if not self._clones:
            return False
        path, _ = self._fds[target]
        self._count("clone", path)
        self.write(target, 0, self._fds[source][1].now)
        return True

    def fsync(self, fd, name="fsync"):
        path, inode = self._fds[fd]
        try:
            self._count(name, path)
        except OSError:
            inode.pending = []  # the pages are taken for clean: they are lost with the power, whoever flushes again
            raise
        for offset, data in inode.pending:
            inode.durable.extend(bytes(max(0, offset - len(inode.durable))))
            inode.durable[offset : offset + len(data)] = data
        inode.pending = []

    def fdatasync(self, fd):
        self.fsync(fd, "fdatasync")

    def rename(self, source, target):
        self._count("rename", target)
        self._alter([PurePosixPath(target).parent], "rename", source, target, self._names[source])

    def unlink(self, path):
        self._count("unlink", path)
        if path not in self._names:
            raise FileNotFoundError(2, "No such file", path)
        self._alter([PurePosixPath(path).parent], "unlink", path)

    def let_go_later(self, paths):
        return nullcontext()

    def fsync_dir(self, path):
        self._count("fsync_dir", path)
        waiting = []
        for entry in self._pending:
            if str(path) in entry[0]:
                self._apply(self._durable_names, entry[1], entry[2:])
            else:
                waiting.append(entry)
        self._pending = waiting
