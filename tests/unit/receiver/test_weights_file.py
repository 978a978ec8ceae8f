"""The file of received weights: one that the library of the format reads, complete or absent, with its digest."""

from hashlib import blake2b
from pathlib import Path

import pytest

from apollod.receiver.payload import Tensor
from apollod.receiver.weights_file import new_weights_file
from apollod.store.model_files import read_header

TENSORS = [
    Tensor("z", "bfloat16", (3,)), Tensor("a", "float32", (2, 2)), Tensor("none", "float16", (0, 7)),
    Tensor('quoted " and ü', "float16", ()),
]  # fmt: skip
DATA = [bytes(range(6)), bytes(range(16)), b"", b"\0\x3c"]


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
