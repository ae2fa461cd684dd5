"""File descriptors for checks: files that are not semaphores, and the identity of the file behind a number."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

__all__ = ["Identity", "count", "identity", "is_open", "null", "others"]

Identity = tuple[int, int]


def null() -> int:
    """Open /dev/null; the caller closes the descriptor."""
    return os.open(os.devnull, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))


def others() -> Iterator[tuple[str, int]]:
    """Yield the name and a descriptor of files that are neither semaphores nor memory; the caller closes them."""
    read, write = os.pipe()
    os.close(write)
    yield "a pipe", read
    if sys.platform != "win32":
        yield "a directory", os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    one, other = socket.socketpair()
    other.close()
    yield "a socket", one.detach()
    yield "/dev/null", null()


def identity(number: int) -> Identity | None:
    """Return the identity of the file behind a number, or None if the number is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_open(number: int) -> bool:
    """Return whether a number is open."""
    return identity(number) is not None


def count() -> int:
    """Return the number of open descriptors, or 0 on a system without /proc/self/fd."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
