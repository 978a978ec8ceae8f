"""A manifest that reaches outside its storage is refused before anything is mapped."""

import msgspec
import pytest

from apollod.errors import ShareRefused
from apollod.wire import messages
from apollod.wire.manifest import Manifest, MemoryFile, TensorEntry

W = TensorEntry("w", 0, 256, (4, 8), (8, 1), "bfloat16", "bfloat16", "live")


def manifest(*tensors: TensorEntry, size: int = 320) -> Manifest:
    return Manifest("/m", "memfd", (MemoryFile(size),), tensors)


def test_the_last_byte_of_a_strided_view():
    assert W.last_byte() == 256 + 64
    assert msgspec.structs.replace(W, stride=(16, 1)).last_byte() == 256 + 2 * (3 * 16 + 7 + 1)


def test_views_inside_are_accepted_and_counted():
    m = manifest(W)
    m.check()
    assert m.count("live") == 1 and m.count("frozen") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 258},
        {"offset": -2},
        {"shape": (5, 8)},
        {"stride": (9, 1)},
        {"storage": 1},
        {"dtype": "float8"},
        {"stride": (8, -1)},
    ],
)
def test_anything_outside_is_refused(change):
    with pytest.raises(ShareRefused):
        manifest(msgspec.structs.replace(W, **change)).check()


def test_a_name_twice_is_refused():
    with pytest.raises(ShareRefused, match="twice"):
        manifest(W, W).check()


def test_a_manifest_survives_the_wire():
    loaded = messages.Loaded(manifest(W), 1.5)
    assert msgspec.msgpack.Decoder(messages.ToSupervisor).decode(messages.encode(loaded)) == loaded


def test_every_message_has_a_tag_of_its_own():
    for union in (messages.ToSupervisor, messages.FromSupervisor):
        msgspec.msgpack.Decoder(union)
