"""The failure of an import, with the fate of the handle."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Fate", "ImportFailure"]

Fate: TypeAlias = Literal["taken", "left", "unknown"]
"""The state of an imported handle after a failure, see `ImportFailure`."""


class ImportFailure(Exception):
    """Failure of `DeviceDriver.import_semaphore` or `DeviceDriver.import_memory`.

    The facade raises `error` to the application. The application's own handle is never affected, because the driver
    receives a duplicate.

    Parameters
    ----------
    error : Exception
        Error for the application.
    fate : "taken", "left" or "unknown"
        State of the duplicate. "taken": the driver owns or has closed it, and the facade does not close it.
        "left": the driver has not taken it, and the facade closes it. "unknown": the facade asks the kernel. If the
        kernel cannot tell, the facade leaks the number, because closing it could close the file of another owner.

    Examples
    --------
    >>> from xsem.errors import UnsupportedError
    >>> failure = ImportFailure(UnsupportedError("no timelines", capability="semaphore.import"), fate="left")
    >>> failure.fate
    'left'
    """

    def __init__(self, error: Exception, *, fate: Fate) -> None:
        super().__init__(str(error))
        self.error = error
        self.fate: Fate = fate
