"""A driver without a fault, which complains of calls that xsem must not make."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from faults.base import DRIVER_CALLS, FAULTS, LIST_CALLS, Driver, Fault, List
from xsem import spi

__all__ = ["Watched", "WatchedList"]

# The release of what each call makes.
_RELEASES = {
    "import_semaphore": "release_semaphore", "create_semaphore": "release_semaphore",
    "import_memory": "release_memory", "create_memory": "release_memory", "map_buffer": "unmap_buffer",
    "host_buffer": "release_host_buffer", "borrow_event": "release_fence",
    "import_host_timeline": "release_semaphore", "import_host_memory": "release_memory",
}


def _end(complaint: str) -> NoReturn:
    # The runner of the suite reports what a dying process has printed.
    print(complaint, file=sys.stderr, flush=True)
    os._exit(70)


def _watching(calls: Sequence[str]) -> dict[str, Any]:
    def watcher(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            with self.watched(name, args):
                made = getattr(self.inner, name)(*args)
            self.note(name, made)
            return made

        return method

    return {name: watcher(name) for name in calls}


class WatchedList(List):
    """Complains of calls at the same time, of calls after `close`, and of calls by threads that `callers` excludes."""

    locals().update(_watching(LIST_CALLS))

    def __init__(self, inner: spi.QueueDriver, driver: Watched) -> None:
        super().__init__(inner, driver)
        self._inside = threading.Lock()
        self._closed = False

    @contextmanager
    def watched(self, name: str, args: tuple[Any, ...]) -> Iterator[None]:
        driver: Any = self.driver
        own = threading.current_thread().name.startswith("xsem-")
        # The thread that releases an idle queue closes it, so this rule is for all calls but `close`.
        if own and self.callers is spi.Callers.APPLICATION and name != "close":
            driver.complain(f"{name} of a queue of the application in {threading.current_thread().name}")
        if self._closed:
            driver.complain(f"{name} of a closed queue")
        alone = self._inside.acquire(blocking=False)
        if not alone and self.callers is not spi.Callers.ANY:
            driver.complain(f"{name} of a queue during another call of it")
        self._closed |= name == "close"
        try:
            yield
        finally:
            if alone:
                self._inside.release()

    def note(self, name: str, made: Any) -> None:
        if name.startswith("append_") and made is not None:
            self.driver.note("borrow_event", made)   # type: ignore[attr-defined]


class Watched(Driver):
    """Complains of calls at the same time on one queue, of a second release, and of what is left at `close`."""

    locals().update(_watching(DRIVER_CALLS))
    list_type = WatchedList
    complain = staticmethod(_end)

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        # The objects to release, by the release; the tokens stay here, so that none gets the id of another.
        self._to_release: Counter[tuple[str, int]] = Counter()
        self._tokens: dict[int, Any] = {}
        self._closed = False

    @contextmanager
    def watched(self, name: str, args: tuple[Any, ...]) -> Iterator[None]:
        if self._closed:
            self.complain(f"{name} of a closed device")
        if name in _RELEASES.values():
            with self._lock:
                key = name, id(args[0])
                self._to_release[key] -= 1
                if self._to_release[key] < 0:
                    self.complain(f"{name} of an object that is released already")
        if name == "close":
            self._closed = True
            left = sorted({release for (release, _), count in self._to_release.items() if count})
            if left:
                self.complain(f"close before {', '.join(left)}")
        yield

    def note(self, name: str, made: Any) -> None:
        if name not in _RELEASES:
            return
        token = made.token if isinstance(made, spi.Imported) else made[0] if isinstance(made, tuple) else made
        with self._lock:
            self._tokens[id(token)] = token
            self._to_release[_RELEASES[name], id(token)] += 1


FAULTS["none"] = Fault(Watched, "no fault: must conform, and xsem must not break the rules of the interface")
