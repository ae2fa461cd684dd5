"""Open the object of a descriptor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from xsem.data.handles import OwnedHandle
from xsem.data.memory_desc import MemoryDesc
from xsem.data.semaphore_desc import SemaphoreDesc
from xsem.errors import BadHandleError

if sys.platform == "win32":
    from xsem.portable.windows import duplicate, open_event, open_section
else:
    from xsem.portable.linux import duplicate

__all__ = ["opened"]

_Object = TypeVar("_Object")


def opened(
    desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None, open_: Callable[[OwnedHandle], _Object], *,
    event: bool = False,
) -> _Object:
    """Call `open_` with a duplicate of the handle, or with the object of the descriptor's name; it owns the result."""
    with _named(desc, event=event) if handle is None else duplicate(handle.fileno()) as own:
        return open_(own)


def _named(desc: SemaphoreDesc | MemoryDesc, *, event: bool) -> OwnedHandle:
    # Only Windows has such names.
    if sys.platform == "win32" and desc.name is not None:
        return open_event(desc.name) if event else open_section(desc.name)
    raise BadHandleError("the descriptor has no handle: pass a descriptor with a file descriptor or an NT handle",
                         reason="no_handle")
