"""What a processor can multiply, from what Linux says of it."""

import pytest

from apollod.adapters.system.processor import bf16_instructions, processor_kind

ZEN4 = "processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f avx512_bf16 avx512_vnni\n\nprocessor\t: 1\nflags\t\t: fpu\n"
HASWELL = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse2 avx2 fma f16c\n"
CASCADE_LAKE = "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni\n"
GRAVITON3 = "processor\t: 0\nFeatures\t: fp asimd sve i8mm bf16\n"


@pytest.mark.parametrize(
    ("cpuinfo", "environ", "found"),
    [
        (ZEN4, {}, "avx512_bf16"),
        (HASWELL, {}, ""),
        (CASCADE_LAKE, {}, ""),
        (GRAVITON3, {}, "bf16"),
        ("", {}, ""),
        (ZEN4, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, ""),
        (ZEN4, {"DNNL_MAX_CPU_ISA": "avx512_core"}, ""),
        (ZEN4, {"ONEDNN_MAX_CPU_ISA": "ALL", "DNNL_MAX_CPU_ISA": "AVX2"}, "avx512_bf16"),
        (ZEN4, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, "avx512_bf16"),
    ],
)
def test_the_instructions_that_torch_can_use(cpuinfo: str, environ: dict[str, str], found: str) -> None:
    assert bf16_instructions(cpuinfo, environ) == found


def test_of_this_machine() -> None:
    """Whatever it is; a limit takes it away."""
    assert bf16_instructions(environ={}) in ("", "avx512_bf16", "amx_bf16", "bf16")
    assert bf16_instructions(environ={"ONEDNN_MAX_CPU_ISA": "AVX2"}) == ""


@pytest.mark.parametrize(
    ("cpuinfo", "environ", "found"),
    [
        (ZEN4, {}, "avx512_bf16"),
        (ZEN4 + "flags\t: amx_bf16", {}, "avx512_bf16"),
        ("flags\t: avx2 avx512f avx512_bf16 amx_bf16\n", {}, "amx_bf16"),
        (ZEN4, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, "avx512"),
        (ZEN4, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "avx2"),
        (CASCADE_LAKE, {}, "avx512"),
        (HASWELL, {}, "avx2"),
        (GRAVITON3, {}, "arm_bf16"),
        ("Features\t: fp asimd\n", {}, "arm"),
        ("", {}, "other"),
    ],
)
def test_the_kind_by_which_kernels_are_chosen(cpuinfo: str, environ: dict[str, str], found: str) -> None:
    assert processor_kind(cpuinfo, environ) == found
