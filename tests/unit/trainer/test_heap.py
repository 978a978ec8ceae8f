"""What the trainer's heap does with memory that a step frees; in a process of its own, because it is for good."""

import subprocess
import sys

PROGRAM = """
import ctypes, resource, sys
from pathlib import Path
from apollod.trainer import memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
SIZE = 16 << 20  # a block of an embedding's rows, twice

def take_and_free():
    blocks = [libc.malloc(SIZE) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, SIZE)
    for block in blocks:
        libc.free(block)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

if sys.argv[1] == "kept":
    memory.keep_pages()
take_and_free()
before, held = faults(), resident()
for _ in range(5):
    take_and_free()
again = faults() - before
memory.give_back()
print(again, held - resident())
"""


def run(how: str) -> tuple[int, int]:
    """(pages faulted in again, bytes given back)."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60, check=True)
    again, given = done.stdout.split()
    return int(again), int(given)


def test_what_a_step_frees_is_there_for_the_next_one_and_can_be_given_back() -> None:
    again, given = run("kept")
    assert again < 1000 and given > 60 << 20, (again, given)
    assert run("left as it is")[0] > 20_000  # that is what it is for
