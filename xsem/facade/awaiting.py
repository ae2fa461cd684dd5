"""Waits in asyncio. The device's notifier polls for all of them, so no wait has a thread of its own."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from xsem.runtime.callbacks import Blocked, Completion, Notifier
from xsem.runtime.device_state import DeviceState

if TYPE_CHECKING:
    import asyncio

__all__ = ["wait_until_done"]

_RETRY_S: Final = 0.05


@types.coroutine
def wait_until_done(device_state: DeviceState, completion: Completion, blocked: Blocked) -> Generator[Any, None, None]:
    """Wait until `completion` is done, or raise its error or that of `blocked`."""
    # A cancellation withdraws the request. A release of the device during the wait raises ReleasedError.
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish(failure: Exception | None) -> None:
        if future.done():
            return  # cancelled
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    def reached(failure: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(finish, failure)

    notifier = device_state.notifier
    remove = notifier.add(completion, reached, blocked)
    try:
        yield from _resumed(notifier, future)
        yield from future.__await__()
    finally:
        remove()


def _resumed(notifier: Notifier, future: asyncio.Future[None]) -> Generator[Any, None, None]:
    """Resume a stalled notifier until a thread polls or `future` is done. No later call is certain to resume it."""
    import asyncio

    while not future.done() and notifier.stalled and not notifier.thread.ensure():
        yield from asyncio.sleep(_RETRY_S).__await__()
