"""Files of the suite at numbers that a driver no longer owns. A second close of a number closes the file."""

from __future__ import annotations

from typing import Self

from xsem.spi import duplicate_fd
from xsem_conformance.system import handles

__all__ = ["Canaries"]


class Canaries:
    """Duplicates of one pipe at numbers that the check chooses."""

    # The end of the ``with`` block closes the files that are still open.

    def __init__(self) -> None:
        self._file = handles.pipe()
        self._planted: list[int] = []

    def before_import(self) -> int:
        """Return the lowest number that the next import through xsem can use for its duplicate."""
        with duplicate_fd(self._file) as last:
            return last.fileno() + 1

    def plant(self, number: int) -> bool:
        """Open the file at the lowest free number from `number` on; return whether `number` itself was free."""
        planted = handles.duplicate_to(self._file, number)
        self._planted.append(planted)
        return planted == number

    def lost(self) -> list[int]:
        """Return the numbers at which another owner has closed the file."""
        return [each for each in self._planted if not handles.same(each, self._file)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._planted, self._file):
            if handles.same(each, self._file):
                handles.close(each)
