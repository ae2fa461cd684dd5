"""Work of fresh threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
