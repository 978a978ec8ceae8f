"""The demo of Atropos says what it lacks; everything else is tested with its processes, in
tests/integration/test_atropos_environment.py."""

from pathlib import Path

import pytest

from apollod.demo.rewards import PACKAGES, Atropos
from apollod.errors import ApolloError


def test_what_is_not_installed_is_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "no_such_module", "no-such-package==1")
    with pytest.raises(ApolloError) as refused:
        Atropos(tmp_path)
    assert "no_such_module" in str(refused.value)
    assert "pip install --no-deps" in refused.value.hint and refused.value.hint.endswith("no-such-package==1")


def test_the_makefile_installs_what_the_demo_needs() -> None:
    installs = (Path(__file__).parents[3] / "Makefile").read_text()
    missing = [name for name in PACKAGES.values() if name not in installs]
    assert not missing
