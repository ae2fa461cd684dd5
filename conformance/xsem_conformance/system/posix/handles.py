"""File descriptors and threads of this process."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

# For the type checker. Windows has another module in place of this one.
assert sys.platform != "win32" or not TYPE_CHECKING  # noqa: S101

if sys.platform != "win32":
    import fcntl

__all__ = [
    "Identity", "close", "count", "duplicate", "duplicate_to", "host_mappings", "identity", "inheritable", "is_open",
    "named_files", "named_host_mappings", "named_threads", "null", "opened", "others", "pipe",
    "processes_with", "same", "threads",
]

Identity = tuple[int, int]

_TASKS: Final = "/proc/self/task"
_FILES: Final = "/proc/self/fd"
_MAPPINGS: Final = "/proc/self/maps"


def duplicate(number: int) -> int:
    """Return a duplicate of the descriptor. The caller closes it."""
    return os.dup(number)


def duplicate_to(number: int, wanted: int) -> int:
    """Return a duplicate of the descriptor with the lowest free number from `wanted` on. The caller closes it."""
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, wanted)


def pipe() -> int:
    """Return the reading end of a pipe without a writing end. The caller closes it."""
    read, write = os.pipe()
    os.close(write)
    return read


def null() -> int:
    """Open /dev/null; the caller closes the descriptor."""
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def others() -> Iterator[tuple[str, int]]:
    """Yield the name and a descriptor of files that are neither semaphores nor memory; the caller closes them."""
    yield "a pipe", pipe()
    yield "a directory", os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    one, other = socket.socketpair()
    other.close()
    yield "a socket", one.detach()
    yield "/dev/null", null()


def close(number: int) -> None:
    """Close the descriptor, if it is open."""
    with contextlib.suppress(OSError):
        os.close(number)


def identity(number: int) -> Identity | None:
    """Return the identity of the file behind a number, or None if the number is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def same(one: int, other: int) -> bool:
    """Return whether both numbers are open with one file. The inode of a pipe is unique."""
    return identity(one) == identity(other) is not None


def is_open(number: int) -> bool:
    """Return whether a number is open."""
    return identity(number) is not None


def inheritable(number: int) -> bool:
    """Return whether a program that this process starts inherits the descriptor: it is not close-on-exec."""
    return os.get_inheritable(number)


def count() -> int:
    """Return the number of open descriptors, or 0 on a system without /proc/self/fd."""
    return len(os.listdir(_FILES)) if os.path.isdir(_FILES) else 0


def opened() -> dict[int, Identity]:
    """Return the identity of each open file by its number, or nothing on a system without /proc/self/fd."""
    if not os.path.isdir(_FILES):
        return {}
    found = {int(each): identity(int(each)) for each in os.listdir(_FILES)}
    return {number: file for number, file in found.items() if file is not None}


def named_files() -> dict[Hashable, str]:
    """Return the target of each open descriptor by its number and file, or nothing without /proc/self/fd."""
    found: dict[Hashable, str] = {}
    for number, file in opened().items():
        with contextlib.suppress(OSError):   # another thread has closed it
            found[number, file] = f"a descriptor of {os.readlink(f'{_FILES}/{number}')}"
    return found


def host_mappings() -> int:
    """Return the number of mappings of objects of the host, or 0 on a system without /proc/self/maps."""
    return len(_host_mappings())


def named_host_mappings() -> dict[Hashable, str]:
    """Return the file of each mapping of an object of the host by its addresses, or nothing without /proc/self/maps."""
    return {fields[0]: f"a mapping of {' '.join(fields[5:])}" for fields in map(str.split, _host_mappings())}


def _host_mappings() -> list[str]:
    if not os.path.exists(_MAPPINGS):
        return []
    with open(_MAPPINGS, encoding="utf-8", errors="replace") as lines:
        return [each for each in lines if "/memfd:xsem-" in each]


def threads() -> int:
    """Return the number of threads of this process, or of Python's threads on a system without /proc."""
    return len(os.listdir(_TASKS)) if os.path.isdir(_TASKS) else threading.active_count()


def named_threads() -> dict[Hashable, str]:
    """Return the name of each thread of this process by its number, or nothing on a system without /proc."""
    found: dict[Hashable, str] = {}
    for task in Path(_TASKS).glob("[0-9]*"):
        with contextlib.suppress(OSError):   # the thread has ended
            found[task.name] = f"the thread {(task / 'comm').read_text(errors='replace').strip()!r}"
    return found


def processes_with(setting: str) -> dict[int, str]:
    """Return the command line of each live process with this setting in its environment; nothing without /proc."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):   # the process is of another user, or has ended; a zombie has no environment
            if setting.encode() in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = " ".join(command.split())[:100]
    return found
