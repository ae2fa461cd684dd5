"""One text of steps for callers that block and for callers in asyncio."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

from xsem.errors import WaitTimeoutError
from xsem.facade.semaphore import Semaphore
from xsem.runtime.timeouts import check_timeout

__all__ = ["Need", "Steps", "run", "run_in_asyncio"]

_T = TypeVar("_T")
_SLICE_S: Final = 0.1   # after it, the steps look who is alive
_PAUSE_S: Final = 0.005


class Need(NamedTuple):
    """What the steps wait for. They look again after a while, whether it is there or not."""

    semaphore: Semaphore
    value: int


Steps: TypeAlias = Generator[Need, bool, _T]
"""Steps that yield what they wait for, and get whether the time is over."""


def run(steps: Steps[_T], timeout_s: float | None) -> _T:
    """Make the steps, and block the thread where they wait."""
    end = _end(timeout_s)
    try:
        need = next(steps)
        while True:
            left_s = _left(end)
            if left_s > 0:
                try:
                    need.semaphore.host_wait(need.value, timeout_s=left_s)
                except WaitTimeoutError as error:
                    if error.reason != "timeout":   # it comes at once
                        time.sleep(_PAUSE_S)
            need = steps.send(left_s <= 0)
    except StopIteration as stop:
        return cast("_T", stop.value)
    finally:
        steps.close()


async def run_in_asyncio(steps: Steps[_T], timeout_s: float | None) -> _T:
    """Make the steps, and let other tasks run where they wait."""
    import asyncio

    end = _end(timeout_s)
    try:
        need = next(steps)
        while True:
            left_s = _left(end)
            if left_s > 0:
                try:
                    await need.semaphore.reached(need.value, timeout_s=left_s)
                except WaitTimeoutError as error:
                    if error.reason != "timeout":
                        await asyncio.sleep(_PAUSE_S)
            need = steps.send(left_s <= 0)
    except StopIteration as stop:
        return cast("_T", stop.value)
    finally:
        steps.close()


def _end(timeout_s: float | None) -> float | None:
    check_timeout(timeout_s)
    return None if timeout_s is None else time.monotonic() + timeout_s


def _left(end: float | None) -> float:
    return _SLICE_S if end is None else min(_SLICE_S, end - time.monotonic())
