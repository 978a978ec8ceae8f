"""Recognises errors that say that memory ran out, of the host or of a device."""

import errno

_WORDS = (
    "out of memory",  # "CUDA out of memory", "CUDA error: out of memory"; HIP likewise
    "status_alloc_failed",  # CUBLAS_, CUDNN_, CUSPARSE_STATUS_ALLOC_FAILED
    "can't allocate memory", "not enough memory",  # torch's allocator on CPU
    "could not create a memory", "could not create a primitive",  # oneDNN: objects and kernels of its own
    "std::bad_alloc",
)  # fmt: skip


_SPOILS = ("could not create a memory", "could not create a primitive")


def spoils_the_thread(error: BaseException) -> bool:
    """oneDNN makes no kernel any more in a thread in which it once found no memory for one, also when there is some
    again: its code generator (xbyak without exceptions) keeps its error in a thread-local variable that nothing
    resets, and refuses to begin while one is there. Other threads go on."""
    said = str(error).lower()
    return any(words in said for words in _SPOILS)


def lacks_memory(error: BaseException) -> bool:
    """Told from the type where there is one (torch.OutOfMemoryError says "out of memory" itself), else from the
    wording: torch's CPU allocator, oneDNN, cuBLAS and the CUDA runtime raise a plain RuntimeError."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _WORDS)
