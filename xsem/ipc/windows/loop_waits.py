"""Waits for the end of a call in an asyncio event loop of any kind."""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any, Final

from xsem.ipc.windows.calls import OverlappedCall, begin_wait, end_wait
from xsem.ipc.windows.deadlines import Deadline

__all__ = ["ended"]

_NOW: Final = Deadline(0.0)
_waiting: Final[dict[int, Callable[[], object]]] = {}
_keys: Final = itertools.count(1)


async def ended(call: OverlappedCall, deadline: Deadline) -> bool:
    """Return True at the end of the call, False if the time is over before. The event loop runs meanwhile."""
    # The thread pool of Windows waits. So the kind of the loop does not matter, and no call needs its own thread.
    import asyncio  # already loaded: the caller runs in an event loop

    if call.wait(_NOW):
        return True
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    key, wait = next(_keys), ctypes.c_void_p()
    _waiting[key] = functools.partial(loop.call_soon_threadsafe, woken.set)
    try:
        begin_wait(wait, call.event, _callback(), key)
        await asyncio.wait_for(woken.wait(), deadline.left_s)
    except TimeoutError:
        pass
    finally:
        # In this order: after the call, no thread of Windows uses the loop or the event.
        end_wait(wait)
        del _waiting[key]
    return call.wait(_NOW)


def _signalled(key: int, _timed_out: int) -> None:
    """Wake the loop that waits. A thread of Windows calls this function."""
    wake = _waiting.get(key)
    if wake is not None:
        wake()


@functools.cache
def _callback() -> Any:
    """Return `_signalled` as a function of C, which lives as long as this module."""
    if sys.platform != "win32":
        raise NotImplementedError("named pipes need Windows")
    return ctypes.WINFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ubyte)(_signalled)
