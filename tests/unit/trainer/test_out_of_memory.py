"""Which errors say that memory ran out: as torch, oneDNN, CUDA and its libraries word them."""

import ast
import errno

import numpy as np
import pytest
import torch
from support.fork_server import said

from apollod.trainer.memory import lacks_memory, spoils_the_thread

LACKS: list[BaseException] = [
    MemoryError(),
    MemoryError("std::bad_alloc"),
    RuntimeError("std::bad_alloc"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has a total capacity of 139.81 GiB of which 1.02 GiB is "
        "free."
    ),
    RuntimeError(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"
    ),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("HIP out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4194304 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes."),
    RuntimeError("could not create a primitive"),
    RuntimeError("could not create a memory object"),
]
OTHERS: list[BaseException] = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: unspecified launch failure"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation"),
    RuntimeError("out of resource: shared memory, Required: 262144, Hardware limit: 232448"),
    RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError("a prompt about an error: out of memory"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", LACKS, ids=lambda error: f"{type(error).__name__} {str(error)[:40]}")
def test_a_lack_of_memory_is_told(error: BaseException) -> None:
    assert lacks_memory(error)


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: f"{type(error).__name__} {str(error)[:40]}")
def test_other_errors_are_told_from_it(error: BaseException) -> None:
    assert not lacks_memory(error)


def test_what_really_fails_here_is_told() -> None:
    for allocate in (lambda: torch.empty(1 << 60, dtype=torch.uint8), lambda: np.ones(1 << 57), lambda: bytes(1 << 62)):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            allocate()
        assert lacks_memory(caught.value), caught.value


def test_a_thread_in_which_onednn_found_no_memory_is_not_gone_on_with() -> None:
    assert spoils_the_thread(RuntimeError("could not create a primitive"))
    assert not spoils_the_thread(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert not spoils_the_thread(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))


STARVED = """
import resource, sys, torch
from concurrent.futures import ThreadPoolExecutor
torch.set_num_threads(1)
pool = ThreadPoolExecutor(1)

def product(width):
    try:
        left, right = torch.randn(64, 256).bfloat16(), torch.randn(256, width).bfloat16()
        return torch.matmul(left, right) is not None
    except RuntimeError as error:
        return str(error)

assert product(512) is True and pool.submit(product, 512).result() is True
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
left, right, out = (torch.ones(*shape).bfloat16() for shape in ((117, 1024), (1024, 1041), (117, 1041)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]), hard))
try:
    torch.matmul(left, right, out=out)
    said = ""
except RuntimeError as error:
    said = str(error)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
print([said, product(513), pool.submit(product, 514).result()])
pool.shutdown()
"""


def test_onednn_that_found_no_memory_goes_on_in_another_thread_and_in_no_other_way() -> None:
    """What the trainer's way out rests on. How little memory makes it fail, and nothing else, is tried out."""
    words, found = "could not create a primitive", []
    for room in (1 << 20, 1 << 19, 1 << 21, 1 << 18):
        code, text = said(STARVED, str(room))
        found.append(text.strip() or code)
        if code == 0 and words in text:
            assert ast.literal_eval(text) == [words, words, True]
            return
    pytest.skip(f"oneDNN could not be made to fail here: {found}")
