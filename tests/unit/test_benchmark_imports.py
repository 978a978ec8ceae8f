"""Benchmarks import late, and are run by hand: a module or name that was moved shows here, not months later."""

import ast
from pathlib import Path

from support.fork_server import said

ROOT = Path(__file__).parents[2]


def test_everything_that_benchmarks_import_of_ours_is_there() -> None:
    ours = ("apollod", "tests", "benchmarks")
    lines = set()
    for file in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ours:
                lines.add(ast.unparse(node))
    assert any("tests.support" in line for line in lines)
    there = f"import os, sys; os.chdir({str(ROOT)!r}); sys.path.insert(0, '')"
    program = "\n".join([there, "from apollod import foreign_wheels", "foreign_wheels.guard()", *sorted(lines)])
    assert said(program) == (0, "")
