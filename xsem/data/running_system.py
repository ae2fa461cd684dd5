"""Identity of the running system, for handles that are valid only within it."""

from __future__ import annotations

import os
import platform
import socket
import sys
from typing import Final

from xsem.data.handles import own

__all__ = ["read_small", "system_id"]

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def system_id() -> str:
    """Return a name that all processes of this running system share, containers included: the boot id on Linux."""
    if sys.platform == "win32":   # under Wine, the file exists
        return socket.gethostname()
    try:
        return read_small(_BOOT_ID).decode("ascii").strip()
    except OSError:
        return platform.node()


def read_small(path: str) -> bytes:
    """Return the first 4096 bytes of a file."""
    with own(os.open, path, os.O_RDONLY) as file:   # unlike a file object, it makes no warning after Ctrl-C
        return os.read(file.fileno(), 4096)
