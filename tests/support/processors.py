"""Run a command as on a processor with fewer instructions: `python tests/support/processors.py avx2 COMMAND ...`.

`avx2` and `avx512` (without bf16) hide what this processor has more from torch, vLLM, oneDNN and numpy, in the command
and in all of its children; `native` hides nothing. Needs gcc and an x86 processor. docs/suite.md says what stays
visible.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

SHIM = Path(__file__).with_name("lesser_processor.c")
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
HIDDEN = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "NPY_DISABLE_CPU_FEATURES": AVX512},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "NPY_DISABLE_CPU_FEATURES": "AVX512_SPR"},
}


def environment(kind: str, directory: Path) -> dict[str, str]:
    """Variables that make processes see a processor of `kind`; the library that they preload is built in
    `directory`."""
    if kind == "native":
        return {}
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    library = directory / "lesser_processor.so"
    include = Path(torch.origin).parent / "include"
    build = ["gcc", "-shared", "-fPIC", "-O1", f"-I{include}", "-o", str(library), str(SHIM), "-ldl"]
    subprocess.run(build, check=True)
    preload = " ".join([str(library), *os.environ.get("LD_PRELOAD", "").split()])
    return {**HIDDEN[kind], "LESSER_PROCESSOR": kind, "LD_PRELOAD": preload}


def main(kind: str, *command: str) -> int:
    with tempfile.TemporaryDirectory(prefix="processor-") as directory:
        return subprocess.call(command, env={**os.environ, **environment(kind, Path(directory))})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
