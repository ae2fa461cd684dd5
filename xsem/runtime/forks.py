"""The fork generation of this process: a counter that grows by one in each forked child."""

from __future__ import annotations

import os
from typing import Final

from xsem.errors import ForkedError

__all__ = ["Clock", "check_generation", "clock", "generation"]


class Clock:
    """A counter of forks."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        # The fork generation of this process. Each append compares it, because os.getpid() would be a system call.
        self.now = 0


clock: Final = Clock()
"""The clock of this process."""


def _in_child() -> None:
    clock.now += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)


def generation() -> int:
    """Return the number of forks between the first process and this one."""
    return clock.now


def check_generation(opened_in: int, what: str) -> None:
    """Refuse an object that was opened before a fork: drivers, their threads and locks do not survive one."""
    if opened_in != clock.now:
        raise ForkedError(
            f"{what} was opened before os.fork() and cannot be used in the child; start the process with "
            'multiprocessing\'s "spawn" method and open it there',
            reason="forked",
        )
