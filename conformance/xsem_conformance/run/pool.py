"""Several workers at once. Each worker takes the next case after the end of its case."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from xsem_conformance.run.runner import Workers

__all__ = ["Pool"]

Task = TypeVar("Task")


class Pool(Generic[Task]):
    """Runs tasks on threads, each with its own `Workers`. With one element, the caller's thread runs all tasks."""

    def __init__(self, workers: Sequence[Workers], act: Callable[[Workers, Task], object]) -> None:
        self._workers = workers
        self._act = act
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the running cases, and begin no further case."""
        self._stopped.set()
        for each in self._workers:
            each.stop()

    def run(self, tasks: Iterable[Task]) -> None:
        """Run all tasks in order, and return after the end of the last task. An exception of a task ends the run."""
        rest = iter(tasks)
        if len(self._workers) == 1:
            self._work(self._workers[0], rest)
        else:
            self._on_threads(rest)
        if self._failures:
            raise self._failures[0]

    def _on_threads(self, rest: Iterator[Task]) -> None:
        # The kernel ends a worker together with the thread that started the worker. Each thread therefore ends its
        # own workers.
        threads = [threading.Thread(target=self._thread, args=(each, rest), daemon=True) for each in self._workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:   # Ctrl-C
            self.stop()
            for thread in threads:
                thread.join()
            raise

    def _thread(self, workers: Workers, rest: Iterator[Task]) -> None:
        with workers:
            self._work(workers, rest)

    def _work(self, workers: Workers, rest: Iterator[Task]) -> None:
        try:
            while not self._stopped.is_set():
                with self._lock:
                    task = next(rest, None)
                if task is None:
                    return
                self._act(workers, task)
        except BaseException as error:
            self._failures.append(error)
            with contextlib.suppress(OSError):
                self.stop()
