"""The result and the failure of an import, with the state of the handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from xsem.spi.tokens import Token

__all__ = ["HandleState", "ImportFailure", "Imported"]

HandleState: TypeAlias = Literal["taken", "left", "unknown"]
"""The state of the duplicate after an import.

"taken": the vendor's driver owns the duplicate or has closed it. The facade does not close the duplicate.
"left": the duplicate is open, and the vendor's driver does not use it. The facade closes the duplicate.
"unknown": the backend cannot tell. The facade asks the kernel whether the number still means the same open file. If so,
the facade closes the number. Otherwise, or without an answer of the kernel, the facade gives up the number without
closing it, because another owner can have a file with this number."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of `SemaphoreImport.import_semaphore` or `MemoryImport.import_memory`.

    Attributes
    ----------
    token : Token
        The imported object.
    handle : "taken", "left" or "unknown"
        State of the duplicate. Without a duplicate, the facade ignores the state.

    Examples
    --------
    >>> Imported(7, handle="taken").token
    7
    """

    token: Token
    handle: HandleState


class ImportFailure(Exception):
    """Failure of `SemaphoreImport.import_semaphore` or `MemoryImport.import_memory`.

    The facade raises `error` to the application, with the ``__cause__`` of `error`. The application keeps its own
    handle, because the driver receives a duplicate.

    Parameters
    ----------
    error : Exception
        Error for the application: an `XsemError`.
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
