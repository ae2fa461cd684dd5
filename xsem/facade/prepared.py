"""Prepared waits and signals: one append of the same semaphores, repeated with new values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xsem.facade.semaphore import Semaphore
from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.types import SignalParams, WaitParams

__all__ = ["Prepared"]


class Prepared:
    """A prepared wait or signal, made by `CommandList.prepare_wait` or `CommandList.prepare_signal`.

    Each call appends once. The object keeps a reference to its semaphores. The application can still release a
    semaphore. xsem then frees the semaphore as usual, and each later call raises `ReleasedError`.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     frames = device.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    ...     commands = device.create_command_list()
    ...     signal = commands.prepare_signal(frames)
    ...     for frame in (1, 2, 3):
    ...         signal(frame)
    ...     commands.synchronize()
    ...     frames.value()
    3
    """

    def __init__(
        self, semaphores: Sequence[Semaphore], append: PreparedAppend, repeat: Callable[[PreparedAppend, Any], None]
    ) -> None:
        self._semaphores = semaphores
        self._append = append
        self._repeat = repeat

    def __call__(
        self,
        values: int | SignalParams | WaitParams | Sequence[int | SignalParams | WaitParams | None] | None = None,
    ) -> None:
        """Append the wait or signal with these values.

        Parameters
        ----------
        values : int, SignalParams, WaitParams, a sequence of them, or None
            One value for one semaphore. For a sequence of semaphores, a sequence of the same length. None,
            `SignalParams` and `WaitParams` are valid as in `CommandList.append_signal` and `CommandList.append_wait`.
            The driver uses its prepared arrays for timelines without ``allow_rewind``, and for one binary semaphore
            with None.

        Raises
        ------
        XsemError
            As for `CommandList.append_signal` and `CommandList.append_wait`. Nothing was appended.
        """
        self._repeat(self._append, values)

    def __repr__(self) -> str:
        count = len(self._semaphores)
        return f"<Prepared for {count} semaphore{'' if count == 1 else 's'}>"

    def __del__(self) -> None:
        # The attribute is missing if the constructor failed.
        prepared = getattr(self, "_append", None)
        if prepared is not None:
            prepared.dropped = True
