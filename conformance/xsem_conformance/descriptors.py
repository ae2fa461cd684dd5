"""File descriptors for checks: what is no semaphore, and whether a number still is what it was."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

__all__ = ["Identity", "count", "identity", "is_open", "null", "others"]

Identity = tuple[int, int]


def null() -> int:
    """A new descriptor of /dev/null."""
    return os.open(os.devnull, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))


def others() -> Iterator[tuple[str, int]]:
    """Descriptors of things that are neither semaphores nor memory, each once; the caller closes them."""
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
    """What a number refers to; None where it is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_open(number: int) -> bool:
    """Whether a number refers to anything."""
    return identity(number) is not None


def count() -> int:
    """How many descriptors are open; 0 where nobody tells."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
