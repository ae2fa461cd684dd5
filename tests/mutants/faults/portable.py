"""Faults with portable timelines and memory."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import threading
import time
from typing import Any

from faults.base import Driver, List, a_driver, a_list
from xsem.types import Capabilities

_LOCK_AT = 4000


class _Page:
    """The driver's object for a page. The queues of `host` wait for it and signal it."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def wait(self, value: int, timeout_ns: int) -> bool:
        return self.page.wait(value, timeout_ns)   # type: ignore[no-any-return]

    def signal(self, value: int) -> None:
        self.page.signal(value)

    def close(self) -> None:
        """Do nothing: xsem closes the page."""


class _Pages(Driver):
    page_type: type[_Page] = _Page

    def import_host_timeline(self, page: Any) -> Any:
        return self.page_type(page)


@a_driver
class PortableTimelinesAreNotExported(Driver):
    """Portable timelines are declared for import only."""

    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        return dataclasses.replace(declared, semaphore_export=frozenset(
            each for each in declared.semaphore_export if not each.portable))


@a_driver
class PageStaysMapped(Driver):
    """The driver maps each page of a timeline once more, and never unmaps it."""

    kept: list[Any] = []   # noqa: RUF012 - of the process

    def import_host_timeline(self, page: Any) -> Any:
        from xsem.portable.linux import map_shared

        self.kept.append(map_shared(page.fd, 4096))
        return self.inner.import_host_timeline(page)


@a_driver
class OneWaiterOfAPage(_Pages):
    """One value of a portable timeline meets one wait of the device."""

    class page_type(_Page):  # noqa: N801
        def __init__(self, page: Any) -> None:
            super().__init__(page)
            self._met: set[int] = set()
            self._lock = threading.Lock()

        def wait(self, value: int, timeout_ns: int) -> bool:
            if not super().wait(value, timeout_ns):
                return False
            with self._lock:
                if value in self._met:
                    time.sleep(0.001)
                    return False
                self._met.add(value)
                return True


@a_driver
class PageIsComparedSigned(_Pages):
    """Values of a portable timeline are compared as signed numbers."""

    class page_type(_Page):  # noqa: N801
        def wait(self, value: int, timeout_ns: int) -> bool:
            return value >= 2**63 or super().wait(value, timeout_ns)


@a_driver
class PageIsStoredLate(_Pages):
    """The value of a portable timeline is stored 5 ms after its signal is done."""

    class page_type(_Page):  # noqa: N801
        def signal(self, value: int) -> None:
            threading.Timer(0.005, self.page.signal, [value]).start()


@a_driver
class PageWakesNoWaiter(_Pages):
    """A signal of a portable timeline wakes no waiter, and the driver declares that it does."""

    class page_type(_Page):  # noqa: N801
        def signal(self, value: int) -> None:
            ctypes.c_uint64.from_address(self.page.address + 16).value = value


@a_driver
class LockInThePage(_Pages):
    """A pending wait locks its page against the signals of other processes. A killed process leaves it locked."""

    class page_type(_Page):  # noqa: N801
        def __init__(self, page: Any) -> None:
            super().__init__(page)
            self._owner = ctypes.c_uint32.from_address(page.address + _LOCK_AT)

        def wait(self, value: int, timeout_ns: int) -> bool:
            if super().wait(value, 0):
                return True
            self._owner.value = os.getpid()
            if not super().wait(value, timeout_ns):
                return False
            self._owner.value = 0
            return True

        def signal(self, value: int) -> None:
            while self._owner.value not in (0, os.getpid()):
                time.sleep(0.001)
            super().signal(value)


@a_driver
class ReadOnlyPageIsNotWatched(_Pages):
    """A wait for the page of a read-only descriptor is met at once."""

    class page_type(_Page):  # noqa: N801
        def wait(self, value: int, timeout_ns: int) -> bool:
            return bool(self.page.read_only) or super().wait(value, timeout_ns)


@a_list
class OddByteIsNotCopied(List):
    """A copy of an odd number of bytes, except of one byte, leaves out the last one."""

    def append_copy(self, dst, dst_offset, src, src_offset, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        even = max(1, size - size % 2)
        return self.inner.append_copy(dst, dst_offset, src, src_offset, even, wait_fences, want_fence)
