"""What a demo leaves behind."""

import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from apollod.demo.stage import Stage
from apollod.errors import ApolloError


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """A stage takes SIGTERM for the whole process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def played(error: BaseException | None, directory: Path | None = None, keep: bool = False) -> Path:
    """The directory of a demo that ended so, with a log in it."""
    stage = Stage(str(directory) if directory else None, "apollod-test-")
    stage.keep |= keep
    with nullcontext() if error is None else pytest.raises(type(error)), stage:
        (stage.root / "daemon.log").write_text("a log")
        if error is not None:
            raise error
    return stage.root


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), SystemExit(143)])
def test_nothing_stays_behind_where_nothing_went_wrong(error: BaseException | None) -> None:
    assert not played(error).exists()


def test_logs_stay_where_something_did_and_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = played(ApolloError("it went wrong"))
    assert (root / "daemon.log").exists() and f"{root}/daemon.log" in capsys.readouterr().err


def test_a_directory_that_was_named_or_is_wanted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert played(KeyboardInterrupt(), tmp_path / "named").exists() and played(None, keep=True).exists()


def test_an_earlier_demo_is_not_played_over(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.db").touch()
    with pytest.raises(ApolloError, match="holds an earlier demo"):
        Stage(str(tmp_path), "apollod-test-")


def test_sigterm_ends_it_as_ctrl_c_does() -> None:
    with pytest.raises(SystemExit) as ended, Stage(None, "apollod-test-") as stage:
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM and not stage.root.exists()
