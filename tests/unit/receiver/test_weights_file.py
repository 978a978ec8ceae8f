"""The file of received weights: one that the library of the format reads, complete or absent, with its digest."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from apollod.receiver import taking, weights_file
from apollod.receiver.payload import Tensor
from apollod.receiver.weights_file import new_weights_file
from apollod.store.model_files import read_header
from apollod.wire.tensor_handles import HostBytes

TENSORS = [
    Tensor("z", "bfloat16", (3,)), Tensor("a", "float32", (2, 2)), Tensor("none", "float16", (0, 7)),
    Tensor('quoted " and ü', "float16", ()),
]  # fmt: skip
DATA = [bytes(range(6)), bytes(range(20, 36)), b"", b"\0\x3c"]


def write(path: Path) -> str:
    with new_weights_file(path, TENSORS) as weights:
        for data in DATA:
            weights.write(data)
    return weights.digest


def test_the_file_is_one_of_the_format(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    digest = write(tmp_path / "new")
    assert digest == blake2b((tmp_path / "new").read_bytes(), digest_size=32).hexdigest()
    stored = read_header(tmp_path, "new").tensors
    assert [(one.name, one.dtype, one.shape) for one in stored] == [tuple(one) for one in TENSORS]
    loaded = load_file(tmp_path / "new")
    assert loaded["a"].numpy().tobytes() == DATA[1] and loaded['quoted " and ü'].item() == 1.0


def test_an_older_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), new_weights_file(tmp_path / "new", TENSORS) as weights:
        weights.write(DATA[0])
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["new"] and (tmp_path / "new").read_bytes() == b"old"
    write(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"] and (tmp_path / "new").stat().st_mode & 0o777 == 0o600


class Late(ThreadPoolExecutor):
    """Does its work as late as it may: when the result is waited for."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return SimpleNamespace(result=lambda: fn(*args, **kwargs))


def test_bytes_are_hashed_before_their_place_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By handles there are two blocks in turn, by gloo one buffer of a broadcast."""
    monkeypatch.setattr(weights_file, "ThreadPoolExecutor", Late)
    monkeypatch.setattr(weights_file, "BESIDE_BYTES", 1)
    monkeypatch.setattr(taking, "BLOCK_BYTES", 4)
    (tmp_path / "segment").write_bytes(b"".join(DATA))
    ends = [sum(map(len, DATA[:number])) for number in range(len(DATA))]
    handles = [HostBytes(str(tmp_path / "segment"), at, len(one)) for at, one in zip(ends, DATA, strict=True)]
    found = [taking.take(TENSORS, handles, [str(tmp_path)], tmp_path / "taken")]

    from apollod.receiver.receiving import receive

    class Group:
        timeout_s = 1.0
        sent = iter(DATA)

        def receive(self, into: Any, deadline: float) -> None:
            into.numpy()[:] = list(next(self.sent))

        def rest(self) -> None:
            pass

    found.append(receive(cast(Any, Group()), [[one] for one in TENSORS], tmp_path / "received", as_bytes=True))
    wanted = blake2b((tmp_path / "taken").read_bytes(), digest_size=32).hexdigest()
    assert (tmp_path / "received").read_bytes() == (tmp_path / "taken").read_bytes()
    assert [one.digest for one in found] == [wanted, wanted]
