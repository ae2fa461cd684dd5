"""The result and the failure of an import, with the state of the handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from xsem.spi.tokens import Token

__all__ = ["HandleState", "ImportFailure", "Imported"]

HandleState: TypeAlias = Literal["taken", "left", "unknown"]
"""The state of the duplicate after an import.

"taken": the driver owns the duplicate, or has closed it. The facade does not close it.
"left": the driver has not taken the duplicate. The facade closes it.
"unknown": the facade asks the kernel whether the number still means the same file, and closes the file if so. If the
kernel cannot tell, the facade leaks the number, because closing it could close the file of another owner."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of `SemaphoreImport.import_semaphore` or `MemoryImport.import_memory`.

    Attributes
    ----------
    token : Token
        The imported object.
    handle : "taken", "left" or "unknown"
        State of the duplicate. Without a duplicate, the state has no meaning.

    Examples
    --------
    >>> Imported(7, handle="taken").token
    7
    """

    token: Token
    handle: HandleState


class ImportFailure(Exception):
    """Failure of `SemaphoreImport.import_semaphore` or `MemoryImport.import_memory`.

    The facade raises `error` to the application. The application's own handle is never affected, because the driver
    receives a duplicate.

    Parameters
    ----------
    error : Exception
        Error for the application.
    handle : "taken", "left" or "unknown"
        State of the duplicate, as for `Imported`.

    Examples
    --------
    >>> from xsem.errors import UnsupportedError
    >>> failure = ImportFailure(UnsupportedError("no timelines", capability="semaphore.import"), handle="left")
    >>> failure.handle
    'left'
    """

    def __init__(self, error: Exception, *, handle: HandleState) -> None:
        super().__init__(str(error))
        self.error = error
        self.handle: HandleState = handle
