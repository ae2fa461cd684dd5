"""Work of fresh threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run on so many fresh threads at once; the first exception is raised here."""
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
    """Run on a fresh thread; its exception is raised here."""
    in_threads(1, lambda _index: work())


@contextmanager
def restless(interval_s: float = 1e-6) -> Iterator[None]:
    """Have threads switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
