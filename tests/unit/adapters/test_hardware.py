"""A machine: what a real process called nvidia-smi says, and files as the kernel writes them."""

import os
from pathlib import Path

import pytest

from apollod.adapters.system import hardware
from apollod.adapters.system.hardware import bf16_instructions, processor_kind

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def tell(directory: Path, script: str) -> None:
    (directory / "nvidia-smi").write_text(f'#!/bin/sh\necho "$*" > {directory}/asked\n{script}\n')
    (directory / "nvidia-smi").chmod(0o755)


def test_the_size_is_what_nvidia_smi_says(smi: Path) -> None:
    tell(smi, "echo 143771")
    assert hardware.device_bytes() == 143771 * MIB
    assert (smi / "asked").read_text() == "--query-gpu=memory.total --format=csv,noheader,nounits --id=0\n"


@pytest.mark.parametrize(("visible", "asked"), [("3,1", "3"), ("GPU-8f2a", "GPU-8f2a"), ("", "0")])
def test_it_is_asked_of_the_gpu_that_cuda_takes_first(
    smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str, asked: str
) -> None:
    tell(smi, "echo 81559")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.device_bytes() == 81559 * MIB
    assert (smi / "asked").read_text().endswith(f"--id={asked}\n")


@pytest.mark.parametrize("script", ["echo '[N/A]'", "exit 9", "true", "echo No devices were found; exit 6", "sleep 5"])
def test_who_does_not_tell_is_not_believed(smi: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "NVIDIA_SMI_S", 0.2)
    tell(smi, script.replace("sleep", "exec sleep"))
    assert hardware.device_bytes() is None


def test_without_a_driver_nobody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.device_bytes() is None


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    proc, group = tmp_path / "proc", tmp_path / "cgroup" / "a" / "b"
    group.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    monkeypatch.setattr(hardware, "PROC", proc)
    monkeypatch.setattr(hardware, "CGROUP", tmp_path / "cgroup")
    return group


def limit(group: Path, most: str, used: int, droppable: int = 0) -> None:
    (group / "memory.max").write_text(most + "\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {droppable}\nactive_file 2\n")


def test_without_a_limit_the_host_has_what_the_kernel_says(kernel: Path) -> None:
    limit(kernel, "max", 5)
    assert (hardware.host_bytes(), hardware.host_free_bytes()) == (1000 * KIB, 600 * KIB)


def test_a_control_group_or_one_above_it_may_have_less(kernel: Path) -> None:
    limit(kernel, "max", 5)
    limit(kernel.parent, str(500 * KIB), 400 * KIB, droppable=100 * KIB)
    assert (hardware.host_bytes(), hardware.host_free_bytes()) == (500 * KIB, 200 * KIB)


def test_this_machine_has_memory() -> None:
    assert 0 < hardware.host_free_bytes() <= hardware.host_bytes()


# --- the processor ---------------------------------------------------------------------------------------------------


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
