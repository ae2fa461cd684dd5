"""Faults in lists, events and fences."""

from __future__ import annotations

import os
import time
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem import spi


# ---- events and lists
@a_list
class EventsIgnored(List):
    """Event lists are accepted, but the list does not wait for them."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores, params, (), acquire, want_fence)

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, params, (), release, want_fence)

    def append_barrier(self, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier((), want_fence)

    def append_copy(self, *args):  # type: ignore[no-untyped-def]
        *copy, _, want_fence = args
        return self.inner.append_copy(*copy, (), want_fence)


@a_driver
class PointDoneTooEarly(Driver):
    """A fence counts as reached as soon as it exists."""

    def query_fence(self, fence: Any) -> bool:
        return True

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        return True


@a_driver
class PointNeverDone(Driver):
    """A fence is never reached."""

    def query_fence(self, fence: Any) -> bool:
        return False

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        time.sleep(timeout_ns / 1e9)
        return False


@a_driver
class ListsAreOne(Driver):
    """All lists are one queue: a waiting list blocks all others."""

    _one: spi.QueueDriver | None = None

    def create_queue(self) -> spi.QueueDriver:
        if self._one is None:
            self._one = self.inner.create_queue()
        made = _Unclosed(self._one, self)
        made.identity = id(made)
        return made


class _Unclosed(List):
    def close(self) -> None:
        pass


@a_list
class SignalOvertakes(List):
    """Signals go to a separate queue and overtake earlier work."""

    other: Any = None

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        if self.other is None:
            self.other = self.driver.inner.create_queue()
        return self.other.append_signal(semaphores, params, wait_fences, release, want_fence)

    def close(self) -> None:
        if self.other is not None:
            self.other.close()
        self.inner.close()


@a_list
class CopyOvertakes(List):
    """Copies go to a separate queue and overtake earlier waits."""

    other: Any = None

    def append_copy(self, *args):  # type: ignore[no-untyped-def]
        *copy, want_fence = args
        if self.other is None:
            self.other = self.driver.inner.create_queue()
        self.other.append_copy(*copy, False)
        return self.inner.append_barrier((), want_fence) if want_fence else None

    def close(self) -> None:
        if self.other is not None:
            self.other.close()
        self.inner.close()


@a_list
class CopyDropped(List):
    """Copies are accepted and never done."""

    def append_copy(self, *args):  # type: ignore[no-untyped-def]
        *_, wait_fences, want_fence = args
        return self.inner.append_barrier(wait_fences, want_fence)


@a_list
class WorkIsCalledOnce(List):
    """A queue calls the first function of append_work, and no later function."""

    called = False

    def append_work(self, work):  # type: ignore[no-untyped-def]
        if not self.called:
            self.called = True
            self.inner.append_work(work)


@a_list
class AppendBlocks(List):
    """The append of a wait blocks the caller until the wait is met."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        self.inner.append_wait(semaphores, params, wait_fences, acquire, False)
        fence = self.inner.append_barrier((), True)
        while not self.driver.inner.query_fence(fence):
            time.sleep(0.001)
        return fence if want_fence else None


@a_list
class Crashes(List):
    """A signal ends the process."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        os.abort()
