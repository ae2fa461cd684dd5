"""Words for the exit status of a process of Windows."""

from __future__ import annotations

from typing import Final

__all__ = ["death"]

_EXCEPTIONS: Final = {
    0xC0000005: "access violation", 0xC000001D: "illegal instruction", 0xC0000094: "division by zero",
    0xC00000FD: "stack overflow", 0xC0000374: "heap corruption", 0xC0000409: "abort",
}


def death(status: int) -> str:
    """Return the cause of an unexpected end of a process with this exit status."""
    status &= 0xFFFFFFFF
    if status in _EXCEPTIONS:
        return f"the process died: {_EXCEPTIONS[status]} ({status:#x})"
    return f"the process died: status {status:#x}" if status >= 1 << 31 else f"the process died: status {status}"
