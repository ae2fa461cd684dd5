"""Which side of an os.fork() this process is on: one counter that grows in every child."""

from __future__ import annotations

import os

from xsem.errors import ForkedError

__all__ = ["Clock", "check_generation", "generation"]


class Clock:
    """Counts forks."""

    # A class attribute keeps the read on the hot path to one lookup; os.getpid() is a system call on each append.
    now = 0


def _in_child() -> None:
    Clock.now += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_in_child)


def generation() -> int:
    """How many forks lie between the first process and this one."""
    return Clock.now


def check_generation(opened_in: int, what: str) -> None:
    """Refuse an object that was opened on the other side of a fork.

    Raises
    ------
    ForkedError
        ``forked``: drivers, their threads and their locks do not survive a fork.
    """
    if opened_in != Clock.now:
        raise ForkedError(
            f"{what} was opened before os.fork() and cannot be used in the child; start the process with "
            'multiprocessing\'s "spawn" method and open it there',
            reason="forked",
        )
