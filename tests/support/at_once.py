"""Helpers for work on new threads, for the threads of xsem, and for Ctrl-C at a known moment."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from support.waiting import until


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work` on `count` new threads at once. The first exception is raised here."""
    failures: list[BaseException] = []

    def body(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def in_thread(work: Callable[[], object]) -> None:
    """Run `work` on a new thread. Its exception is raised here."""
    in_threads(1, lambda _index: work())


def threads(kind: str = "") -> list[str]:
    """Return the names of the threads that xsem runs, or of those of one kind, without the one for `xsem pending`."""
    return [each.name for each in threading.enumerate()
            if each.name.startswith(f"xsem-{kind}") and each.name != "xsem-pending"]


def assert_free(lock: Any, timeout_s: float) -> None:
    """Require that a new thread can take a lock. The calling thread could take its own re-entrant lock again."""

    def take() -> None:
        assert lock.acquire(timeout=timeout_s)
        lock.release()

    in_thread(take)


@contextmanager
def restless(interval_s: float = 1e-6) -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def ctrl_c_in(function: str) -> Iterator[None]:
    """Interrupt the calling main thread as soon as it waits in a function of that name."""
    main, begun = threading.get_ident(), threading.Event()
    seen: tuple[FrameType, int] | None = None

    def waits() -> bool:
        """Return whether the main thread is in that function, at the same instruction as at the last call."""
        nonlocal seen
        gc.disable()   # CPython 3.11 can deadlock in a collection inside the next call
        try:
            innermost = frame = sys._current_frames()[main]
        finally:
            gc.enable()
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back  # type: ignore[assignment]
        before, seen = seen, (innermost, innermost.f_lasti) if frame is not None else None
        return seen is not None and seen == before

    def interrupt() -> None:
        nonlocal seen
        begun.wait()   # Thread.start() also waits, and must not be interrupted
        until(waits)
        seen = None   # the frame would keep its local objects alive
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begun.set()
    try:
        yield
    finally:
        thread.join()
