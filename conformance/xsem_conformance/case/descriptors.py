"""File descriptors of files that are neither semaphores nor memory, for checks."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

__all__ = ["null", "others"]


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
