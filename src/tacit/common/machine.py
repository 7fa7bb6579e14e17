"""What this machine has to offer: memory."""

import os
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes that can be had now: of the machine, and of the control groups that this process is in; None: unknown."""
    limits = [_of_machine(proc), *_of_groups(proc, cgroups)]
    return min((limit for limit in limits if limit is not None), default=None)


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
