"""Identity of the running system, for handles that are valid only within it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

__all__ = ["host_id"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def host_id() -> str:
    """Return a name that all processes of this running system share, containers included.

    On Linux it is the boot id of the kernel. On other systems it is the name of the machine.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
