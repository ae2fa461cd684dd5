"""Signals and waits of the same semaphores, over and over, with new values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xsem.facade.semaphore import Semaphore
from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.types import SignalParams, WaitParams

__all__ = ["Prepared"]


class Prepared:
    """What `CommandList.prepare_signal` and `CommandList.prepare_wait` return: call it with the values.

    It keeps the semaphores alive. One that is released is freed as ever, and refused from then on.

    Parameters
    ----------
    values : int, or a sequence of int
        One for one semaphore; as many as there are semaphores for a sequence of them. None, `SignalParams` and
        `WaitParams` are taken, too, as by `CommandList.append_signal` and `CommandList.append_wait`: values of
        timelines alone are the fast way.

    Raises
    ------
    XsemError
        As those: nothing was appended.
    """

    def __init__(
        self, semaphores: Semaphore | Sequence[Semaphore], prepared: PreparedAppend | None,
        append_prepared: Callable[[PreparedAppend, Any], bool], append: Callable[[Any, Any], None],
    ) -> None:
        self._semaphores = semaphores
        self._single = isinstance(semaphores, Semaphore)
        self._prepared = prepared
        self._append_prepared = append_prepared
        self._append = append

    def __call__(
        self,
        values: int | SignalParams | WaitParams | Sequence[int | SignalParams | WaitParams | None] | None = None,
    ) -> None:
        """Append with these values."""
        prepared = self._prepared
        if prepared is not None:
            if self._single:
                if type(values) is int and self._append_prepared(prepared, values):
                    return
            elif type(values) is list or type(values) is tuple:
                values = tuple(values)  # the books remember it
                if prepared.takes(values) and self._append_prepared(prepared, values):
                    return
        self._append(self._semaphores, values)

    def __repr__(self) -> str:
        count = 1 if isinstance(self._semaphores, Semaphore) else len(self._semaphores)
        return f"<Prepared for {count} semaphore{'' if count == 1 else 's'}>"

    def __del__(self) -> None:
        # Where the constructor failed there is none.
        prepared = getattr(self, "_prepared", None)
        if prepared is not None:
            prepared.dropped = True
