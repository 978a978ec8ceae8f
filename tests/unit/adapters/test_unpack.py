"""A log of Inspect is unpacked in bounds, whatever it says of itself."""

import io
import zipfile
from pathlib import Path

import pytest
from support.log_samples.inspect_log import BEGIN, SAMPLE, archive, zstd_archive

from apollod.adapters.sources import unpack
from apollod.adapters.sources.source_files import Terms
from apollod.adapters.sources.trial import Trial
from apollod.adapters.sources.unpack import EvalArchive, unpacked


def content(data: bytes, size: int = 1 << 16) -> bytes:
    read, pieces = unpacked(io.BytesIO(data), "a.eval"), b""
    while piece := read(size):
        assert len(piece) <= size
        pieces += piece
    return pieces


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_samples_become_lines(method: int) -> None:
    lines = content(archive(SAMPLE, b'{"messages": []}', method=method), 100).splitlines(keepends=True)
    assert lines[0] == BEGIN and len(lines) == 3
    assert b"I look." in lines[1] and lines[2] == b'{"messages":[]}\n'


def test_members_packed_by_zstd_are_unpacked() -> None:
    lines = content(zstd_archive("samples/1_epoch_1.json", b'{"messages": [], "events": [1]}'))
    assert lines == BEGIN + b'{"messages":[]}\n'


@pytest.mark.parametrize("claimed", [10, 100_000])
def test_a_size_that_is_not_true_is_damage(claimed: int) -> None:
    with pytest.raises(zipfile.BadZipFile, match="not what the directory says"):
        content(zstd_archive("samples/1_epoch_1.json", b'{"messages": []}' * 100, claimed))


def test_a_sample_that_is_too_long_is_named_and_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MEMBER_BYTES", 1000)
    lines = content(archive(b" " * 5000, b'{"messages": []}')).splitlines()
    assert lines[1:] == [b"a sample of 5000 bytes, which is too long", b'{"messages":[]}']


def test_an_archive_that_claims_too_much_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "TOTAL_BYTES", 4000)
    monkeypatch.setattr(EvalArchive, "_unpacked", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(zipfile.BadZipFile, match="claims to hold more"):
        content(archive(b" " * 5000))


def test_one_that_is_cut_off_is_damage_and_another_file_of_the_name_has_no_content(tmp_path: Path) -> None:
    whole = archive(SAMPLE)
    with pytest.raises(zipfile.BadZipFile):
        content(whole[:-40])
    assert content(b"some text") == b""
    (tmp_path / "cut.eval").write_bytes(whole[:-40])
    (tmp_path / "other.eval").write_bytes(b"some text")
    (tmp_path / "whole.eval").write_bytes(whole)
    trial = Trial(Terms())
    tried = list(trial.read(tmp_path))
    assert {(Path(one.path).name, one.learned is not None) for one in tried} == {
        ("cut.eval", False),
        ("whole.eval", True),
    }
    assert trial.formats == {"inspect": 1} and "cut off or damaged" in tried[0].reason
