"""The two phases of `make test`: who runs where, one account at the end, and an exit code that no phase can hide."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import phases
import pytest

TESTS = """
import os, sys, pytest
from pathlib import Path

def test_beside() -> None:
    assert os.environ.get("PYTEST_XDIST_WORKER") is None

@pytest.mark.engine
def test_engine() -> None:
    assert os.environ.get("PYTEST_XDIST_WORKER") is None and not sys.dont_write_bytecode

@pytest.mark.crash
@pytest.mark.skip
def test_left_out() -> None:
    pass
"""


def test_what_needs_the_machine_runs_alone_and_a_failure_of_the_first_phase_is_told_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    engine\n    crash\n    alone\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    without_numba = "import sys, phases; phases.COMPILES = ''; sys.exit(phases.main(sys.argv[1:]))"
    command = [sys.executable, "-c", without_numba, "-n", "1", str(tmp_path)]
    clean["PYTHONPATH"] = str(phases.TESTS)
    clean["PYTHONDONTWRITEBYTECODE"] = "1"  # as in many containers
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=clean)
    account = done.stdout.rpartition("--- in all\n")[2].splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert account[0].startswith("one after another: 1 passed in ") and account[0].endswith(" s")
    assert account[1].startswith("side by side: 1 failed, 1 skipped in ") and account[1].endswith(" s (exit code 1)")
    assert account[2:] == ["FAILED test_it::test_beside"]


def marks(source: str) -> set[str]:
    """Names of the marks of pytest that a source uses."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    of_marks = [node for node in found if isinstance(node.value, ast.Attribute) and node.value.attr == "mark"]
    return {node.attr for node in of_marks if ast.unparse(node.value) == "pytest.mark"}


def test_no_directory_is_left_out() -> None:
    """Files in no directory would run nowhere; those of tests/gpu are marked there, those of tests/conformance each."""
    with_tests = {path.relative_to(phases.TESTS).parts[0] for path in phases.TESTS.rglob("test_*.py")}
    assert with_tests == {*phases.IN_TURN, "conformance", "gpu"}
    whole = [path.read_text() for path in (phases.TESTS / "conformance").rglob("test_*.py")]
    assert len(whole) > 4 and all(re.search(r"^pytestmark = \[?pytest\.mark\.engine", text, re.M) for text in whole)


def test_what_neither_phase_runs_has_a_target_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Phase:
        def __init__(self, name: str, expression: str, options: Sequence[str], *rest: object, **more: object) -> None:
            given.extend(options)

        def wait(self) -> phases.Result:
            return phases.Result("one", 0, 1.0)

    monkeypatch.setattr(phases, "Phase", Phase)
    monkeypatch.setattr(phases, "COMPILES", "")
    phases.main([])
    makefile = (phases.TESTS.parent / "Makefile").read_text()
    for name in phases.OWN_TARGET:
        assert f"--ignore={phases.TESTS / name}" in given and str(phases.TESTS / name) not in given
        target = name.partition("/")[0]
        assert f"\n{target}:" in makefile and f" tests/{target} " in makefile


def test_where_nothing_is_looked_for_that_runs_alone_there_is_nothing() -> None:
    """It would run nowhere: neither phase takes it."""
    alone = set(phases.ALONE.split(" or "))
    assert marks(TESTS) & alone == {"engine"} and set(phases.NEVER_ALONE) < set(phases.IN_TURN)
    files = [file for directory in phases.NEVER_ALONE for file in (phases.TESTS / directory).rglob("*.py")]
    texts = {file: text for file in files if ".mark." in (text := file.read_text())}
    assert len(texts) > 50 and not [file for file, text in texts.items() if marks(text) & alone]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("failing", range(2))
@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 1), (3, 1), (-9, 1), (5, 0)])
def test_any_phase_fails_the_run(
    failing: int, code: int, expected: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 is pytest's word for nothing to run: a file that belongs to one phase leaves the other without tests."""
    codes = [code if number == failing else 0 for number in range(2)]
    done: list[str] = []

    class Phase:
        def __init__(self, name: str, *rest: object) -> None:
            self.result, self.before = phases.Result(name, codes.pop(0), 1.0), list(done)

        def wait(self) -> phases.Result:
            assert self.before == ([] if cores > 1 else done), "at once on two cores, in turn on one"
            done.append(self.result.name)
            return self.result

    monkeypatch.setattr(phases, "Phase", Phase)
    monkeypatch.setattr(phases, "COMPILES", "")
    monkeypatch.setattr(phases.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert phases.main([]) == expected and not codes and len(done) == 2
