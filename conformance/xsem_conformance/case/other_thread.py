"""Work on another thread, with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from xsem_conformance.outcomes import BrokenError, expect

__all__ = ["OtherThread", "all_at_once", "on_another_thread"]


class OtherThread:
    """A new thread that runs `work` once and keeps its exception."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)

    def ends_within(self, seconds: float | None) -> bool:
        """Wait for the end of the work. Return whether the work has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def finish(self, patience_s: float, otherwise: str) -> None:
        """Wait for the end of the work, and raise its exception. Fail with `otherwise` if the work does not end."""
        expect(self.ends_within(patience_s), otherwise)
        for failure in self.failures:
            raise failure


def on_another_thread(work: Callable[[], object], patience_s: float, otherwise: str) -> None:
    """Run `work` on a new thread. Fail with `otherwise` if the work does not end in time."""
    OtherThread(work).finish(patience_s, otherwise)


def all_at_once(works: Iterable[Callable[[], object]]) -> None:
    """Run each work on a thread of its own until all have ended. Fail if one of them raises."""
    threads = [OtherThread(work) for work in works]
    for each in threads:
        each.ends_within(None)
    failures = [failure for each in threads for failure in each.failures]
    if failures:
        raise BrokenError(f"a thread failed: {failures[0]!r}") from failures[0]
