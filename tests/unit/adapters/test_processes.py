"""What a child that ended by itself is said to have ended of: one line of its output, for a person."""

from pathlib import Path

import anyio
import pytest

from apollod.adapters.system.processes import ChildProcess

PYDANTIC = """\
(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=7)   Value error, Model architectures ['GPT9'] are not supported for now. [type=value_error, input_value=1]
(APIServer pid=7)     For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (PYDANTIC, "(APIServer pid=7)   Value error, Model architectures ['GPT9'] are not supported for now."),
        ("Traceback (most recent call last):\nRuntimeError: first\nValueError: second\nbye\n", "ValueError: second"),
        ("usage: engine\nengine: error: unrecognized arguments: --x\n", "engine: error: unrecognized arguments: --x"),
        ("all is well\n", ""),
        (f"OSError: {'x' * 1000}\n", f"OSError: {'x' * 291}"),
    ],
)
def test_the_line_that_says_why(tmp_path: Path, output: str, told: str) -> None:
    (tmp_path / "said").write_text(output)
    (tmp_path / "speaker.py").write_text(
        "import pathlib\nprint(pathlib.Path(__file__).with_name('said').read_text())\n"
    )

    async def main() -> str:
        child = await ChildProcess.spawn("speaker", (), {"PYTHONPATH": str(tmp_path)}, tmp_path / "log")
        assert await child.wait() == 0
        return child.last_error()

    assert anyio.run(main) == told


def test_a_child_is_not_told_what_the_environment_says_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shower.py").write_text("import os\nprint(*sorted(os.environ), *os.environ.values(), sep='\\n')\n")
    monkeypatch.setenv("APOLLOD_JUDGE__API_KEY", "for nobody else")
    monkeypatch.setenv("APOLLOD_DEVICE", "cpu")

    async def main() -> None:
        child = await ChildProcess.spawn("shower", (), {"PYTHONPATH": str(tmp_path)}, tmp_path / "log")
        assert await child.wait() == 0

    anyio.run(main)
    said = (tmp_path / "log").read_text()
    assert "APOLLOD_DEVICE" in said and "APOLLOD_JUDGE__API_KEY" not in said and "for nobody else" not in said
