"""The times at which events were reached, on the clock of the host."""

from __future__ import annotations

from time import perf_counter as now
from typing import Any, Final

from xsem.errors import XsemError
from xsem_cuda.context import Context
from xsem_cuda.results import NOT_READY, call

__all__ = ["EventTimes"]

_REFER_S: Final = 0.25   # the clocks of the GPU and of the host drift apart
_CLOSE_S: Final = 50e-6   # so the time is known to 25 us
_TRIES: Final = 5
_IDLE_S: Final = 0.002   # an event of an idle stream is reached much earlier


class EventTimes:
    """Compares events with one on an idle stream, whose time the host knows. One thread at a time may ask."""

    # The driver tells the milliseconds between two events as a float of 32 bits, so they must not be far apart.

    def __init__(self, driver: Any, context: Context) -> None:
        self._driver = driver
        self._context = context
        self._quiet = context.quiet
        self._stream: Any = None   # both are created by the first `of`
        self._reference: Any = None
        self._at = 0.0   # when the reference was reached
        self._referred_at = -_REFER_S

    def of(self, event: int) -> float | None:
        """Return when a reached event was reached, in seconds of time.perf_counter(); None if it has no time."""
        try:
            with self._context, self._quiet:
                if now() - self._referred_at >= _REFER_S:
                    self._refer()
                elapsed = call(self._driver.cuEventElapsedTime, self._reference, event)
        except XsemError:   # such as an event of before the trace
            return None
        return None if elapsed is NOT_READY else self._at + float(elapsed) / 1000

    def _refer(self) -> None:
        """Take the reference anew: it was reached between two looks at the clock of the host."""
        driver = self._driver
        if self._stream is None:
            self._stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
            self._reference = call(driver.cuEventCreate, int(driver.CUevent_flags.CU_EVENT_DEFAULT))
        for _ in range(_TRIES):
            begin = now()
            call(driver.cuEventRecord, self._reference, self._stream)
            while call(driver.cuEventQuery, self._reference) is NOT_READY and now() - begin < _IDLE_S:
                pass
            self._referred_at = now()
            self._at = (begin + self._referred_at) / 2
            if self._referred_at - begin < _CLOSE_S:
                break

    def close(self) -> None:
        """Destroy the reference and its stream."""
        if self._reference is not None:
            call(self._driver.cuEventDestroy, self._reference)
        if self._stream is not None:
            call(self._driver.cuStreamDestroy, self._stream)
