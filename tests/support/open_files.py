"""Checks of file descriptors: an unchanged table, and numbers that still refer to the same open file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from xsem.spi import same_open_file


def numbers() -> set[int]:
    """Return the open file descriptors of this process, except the one that lists them."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in found if is_open(number)}


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def untouched(*files: int) -> Iterator[None]:
    """Check that no descriptor is lost or gained inside, and that each of `files` stays the same open file."""
    witnesses = [(number, os.dup(number)) for number in files]
    before = numbers()
    try:
        yield
        assert numbers() == before
        for number, witness in witnesses:
            assert same_open_file(number, witness) is True
            assert not os.get_inheritable(number)
    finally:
        for _, witness in witnesses:
            os.close(witness)


def closed_number() -> int:
    """Return a number without an open file."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


def holding(data: bytes) -> int:
    """Return a new file with that content."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return os.dup(file.fileno())
