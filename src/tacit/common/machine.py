"""What this machine has to offer: memory; and giving back what was read from files."""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes that can be had now: of the machine, and of the control groups that this process is in; None: unknown."""
    limits = [_of_machine(proc), *_of_groups(proc, cgroups)]
    return min((limit for limit in limits if limit is not None), default=None)


AddressRange = tuple[int, int]
"""The first address, and the first behind the last."""


def mapped_files(suffix: str, proc: Path = _PROC) -> set[AddressRange]:
    """Where in this process's memory files with this suffix are mapped; nowhere on systems without /proc."""
    found = set()
    for line in _text(proc / "self" / "maps").splitlines():
        if line.endswith(suffix):
            first, last = line.split(" ", 1)[0].split("-")
            found.add((int(first, 16), int(last, 16)))
    return found


def let_go(ranges: Iterable[AddressRange]) -> None:
    """Give the pages of mapped files back, which are read again when they are needed.

    For mappings that nobody writes to: what was written to a private one would be lost.
    """
    advise = getattr(mmap, "MADV_DONTNEED", None)
    if advise is None:
        return
    system = ctypes.CDLL(None)
    for first, last in ranges:
        system.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), ctypes.c_int(advise))


def keep_large_apart() -> None:
    """Have memory of a megabyte or more given back to the system as soon as it is freed, from now on.

    glibc reuses freed aligned memory badly: weights of a few megabytes that come and go took four times their size.
    """
    system = ctypes.CDLL(None)
    if hasattr(system, "mallopt"):
        system.mallopt(_MMAP_THRESHOLD, 1 << 20)


def _of_machine(proc: Path) -> int | None:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of a system without /proc
    except (OSError, ValueError):
        return None


def _of_groups(proc: Path, cgroups: Path) -> list[int]:
    """What is left under each limit, from the process's own group up; pages of files can be given back."""
    left = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if not unified and "memory" not in controllers.split(","):
            continue
        root = cgroups if unified else cgroups / "memory"
        names = ("memory.max", "memory.current") if unified else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        own = root / path.lstrip("/")
        for group in (own, *own.parents):
            limit, used = (_number(group / name) for name in names)
            if limit is not None and used is not None:
                left.append(max(0, limit - used + _files(group)))
            if group == root:
                break
    return left


def _files(group: Path) -> int:
    stat = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines())
    return int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
