"""Files of the suite at descriptor numbers that a driver no longer owns. A second close of a number closes the file."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Self

from xsem.spi import duplicate_fd
from xsem_conformance.system import handles

__all__ = ["Canaries"]


class Canaries:
    """Duplicates of one pipe at numbers that the check chooses. `fstat` identifies a pipe, because its inode is unique.

    The end of the ``with`` block closes the files that are still open.
    """

    def __init__(self) -> None:
        self._file, write = os.pipe()
        os.close(write)
        self._identity = handles.identity(self._file)
        self._planted: list[int] = []

    def before_import(self) -> int:
        """Return the lowest number that the next import through xsem can use for its duplicate."""
        with duplicate_fd(self._file) as last:
            return last.fileno() + 1

    def plant(self, number: int) -> bool:
        """Open the file at the lowest free number from `number` on; return whether `number` itself was free."""
        if sys.platform == "win32":
            return False
        import fcntl

        planted = fcntl.fcntl(self._file, fcntl.F_DUPFD_CLOEXEC, number)
        self._planted.append(planted)
        return planted == number

    def lost(self) -> list[int]:
        """Return the numbers at which another owner has closed the file."""
        return [each for each in self._planted if handles.identity(each) != self._identity]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._planted, self._file):
            if handles.identity(each) == self._identity:
                with contextlib.suppress(OSError):
                    os.close(each)
