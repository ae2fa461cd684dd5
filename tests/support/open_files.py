"""Checks of handles: an unchanged table, and numbers that still refer to the same object.

A handle is a file descriptor, or an NT handle on Windows.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xsem.spi import same_open_file

if sys.platform == "win32":
    from support import windows_objects as nt

_GRACE_S = 20.0


def numbers() -> set[int]:
    """Return the open handles of this process, except the file descriptor that lists them."""
    if sys.platform == "win32":
        return {*nt.handles()}
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in found if is_open(number)}


@contextmanager
def few_more_files(left: int) -> Iterator[None]:
    """Let the process open only so many more file descriptors in this block. Not on Windows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = sorted(set(range(soft)) - numbers())
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[left], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(number: int) -> bool:
    if sys.platform == "win32":
        return nt.is_open(number)
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def untouched(*handles: int) -> Iterator[None]:
    """Check that no handle is lost or gained inside, and that each of `handles` stays the same object."""
    witnesses = [(number, duplicate(number)) for number in handles]
    before = numbers()
    try:
        yield
        _check_numbers(before)
        for number, witness in witnesses:
            assert same_open_file(number, witness) is True
            assert not is_inheritable(number)
    finally:
        for _, witness in witnesses:
            close(witness)


def _check_numbers(before: set[int]) -> None:
    if sys.platform != "win32":
        assert numbers() == before
        return
    # The end of a thread closes handles: those of threads that began meanwhile, and those of earlier ones.
    deadline = time.monotonic() + _GRACE_S
    while (gained := numbers() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not gained


def is_inheritable(number: int) -> bool:
    if sys.platform == "win32":
        return os.get_handle_inheritable(number)
    return os.get_inheritable(number)


def duplicate(number: int) -> int:
    if sys.platform == "win32":
        return nt.duplicate(number)
    return os.dup(number)


def new_number() -> int:
    """Return a new eventfd, or a new event on Windows."""
    if sys.platform == "win32":
        return nt.event()
    return os.eventfd(0)


def close(number: int) -> None:
    if sys.platform == "win32":
        assert nt.close(number)
    else:
        os.close(number)


def closed_number() -> int:
    """Return a number without an open handle."""
    number = new_number()
    close(number)
    return number


def holding(data: bytes) -> int:
    """Return a new file with that content, or a new section of the paging file on Windows."""
    if sys.platform == "win32":
        return nt.section(len(data))
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return os.dup(file.fileno())
