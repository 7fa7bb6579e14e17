"""Have the C library keep freed memory for the next step: large tensors otherwise cost page faults every time."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of glibc's mallopt
_LARGEST = (1 << 31) - 1
_PAD = 1 << 28


def keep_freed_memory() -> bool:
    """For this process from now on; False where the C library is not glibc, and then nothing is changed."""
    library = ctypes.CDLL(None)
    try:
        mallopt, _ = library.mallopt, library.gnu_get_libc_version
    except AttributeError:
        return False
    return all(mallopt(name, value) for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, _PAD)))
