"""Recognises errors that report a lack of memory, of the host or of a device."""

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
    """True if the error leaves oneDNN unusable in this thread: after one failed allocation for a kernel, its code
    generator (xbyak without exceptions) keeps its error in a thread-local variable that is never reset, and refuses to
    begin while it is set. Other threads go on."""
    said = str(error).lower()
    return any(words in said for words in _SPOILS)


def lacks_memory(error: BaseException) -> bool:
    """True for a lack of memory: by type if there is one (torch.OutOfMemoryError says "out of memory" itself), else by
    wording: torch's CPU allocator, oneDNN, cuBLAS and the CUDA runtime raise a plain RuntimeError."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in _WORDS)
