"""The error tree. Every error can be pickled and carries the same fields.

    XsemError
    ├── BackendUnavailableError (ImportError)    the plugin, its package or its driver library is missing
    ├── DeviceNotFoundError (LookupError)        none or several devices matched
    ├── WrongDeviceError (ValueError)            an object, stream or descriptor of another device
    ├── UnsupportedError (NotImplementedError)   the device does not declare it
    ├── BadHandleError (ValueError)              not a handle of that type
    ├── BadArgumentError (ValueError)            any other argument that cannot be right
    ├── ReleasedError (RuntimeError)             used after release()
    ├── BusyError (RuntimeError)                 right, but not now
    │   └── WouldBlockError                      the driver would hold the caller in this append
    ├── EventNotAppendedError (RuntimeError)     the event is bound to no operation yet
    ├── ForkedError (RuntimeError)               opened before os.fork()
    ├── WaitTimeoutError (TimeoutError)          a host wait ran out; `pending` says on what
    ├── OutOfMemoryError (MemoryError)
    └── DriverError (RuntimeError)               the driver's own code
        └── DeviceLostError
"""

from __future__ import annotations

from typing import Any

from xsem.data.handle_types import MemoryHandleType, SemaphoreHandleType
from xsem.data.info import DeviceInfo, PendingOp

__all__ = [
    "BackendUnavailableError",
    "BadArgumentError",
    "BadHandleError",
    "BusyError",
    "DeviceLostError",
    "DeviceNotFoundError",
    "DriverError",
    "EventNotAppendedError",
    "ForkedError",
    "OutOfMemoryError",
    "ReleasedError",
    "UnsupportedError",
    "WaitTimeoutError",
    "WouldBlockError",
    "WrongDeviceError",
    "XsemError",
]


class XsemError(Exception):
    """Base of all errors of xsem.

    Parameters
    ----------
    message : str
        One sentence for a person.
    reason : str
        Stable slug for programs, listed in ``docs/errors.md``.
    backend : str, optional
        The backend concerned, e.g. ``"cuda"``.
    call : str, optional
        The vendor function, e.g. ``"cuImportExternalSemaphore"``.
    code, code_name : int, str, optional
        What that function returned.
    handle_type : SemaphoreHandleType or MemoryHandleType, optional
        The handle type concerned.
    likely_causes : tuple of str
        Most likely first.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        backend: str | None = None,
        call: str | None = None,
        code: int | None = None,
        code_name: str | None = None,
        handle_type: SemaphoreHandleType | MemoryHandleType | None = None,
        likely_causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.backend = backend
        self.call = call
        self.code = code
        self.code_name = code_name
        self.handle_type = handle_type
        self.likely_causes = likely_causes

    def __str__(self) -> str:
        text = what(self)
        if self.likely_causes:
            text += "; likely: " + "; ".join(self.likely_causes)
        return text

    # The builtin co-bases each have their own idea of __reduce__, and none keeps keyword fields.
    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(cls: type[XsemError], args: tuple[Any, ...], fields: dict[str, Any]) -> XsemError:
    # The builtin that the class has its layout from must make it: cls.__new__ would be MemoryError's for
    # OutOfMemoryError, which refuses, for its layout is Exception's.
    layout: Any = cls
    while layout.__module__ != "builtins":
        layout = layout.__base__
    error: XsemError = layout.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def what(error: XsemError) -> str:
    """The message of an error with the driver's own code, without the likely causes."""
    if error.call is None or error.code is None:
        return error.message
    return f"{error.message} [{error.call} returned {error.code_name or 'an unknown code'} ({error.code})]"


class BackendUnavailableError(XsemError, ImportError):
    """A backend cannot be used here: not installed, its package or driver library is missing, or it failed to load."""


class DeviceNotFoundError(XsemError, LookupError):
    """No device matched, or several did: `candidates` lists what there is to choose from."""

    def __init__(self, message: str, *, candidates: tuple[DeviceInfo, ...] = (), **fields: Any) -> None:
        super().__init__(message, **fields)
        self.candidates = candidates


class WrongDeviceError(XsemError, ValueError):
    """Something of another device: `expected` says whose it is, `actual` where it was used."""

    def __init__(self, message: str, *, expected: str, actual: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.expected = expected
        self.actual = actual


class UnsupportedError(XsemError, NotImplementedError):
    """The device does not declare `capability`, e.g. ``"semaphore.import.sync_fd"``; the driver was not called."""

    def __init__(self, message: str, *, capability: str, **fields: Any) -> None:
        fields.setdefault("reason", "unsupported")
        super().__init__(message, **fields)
        self.capability = capability


class BadHandleError(XsemError, ValueError):
    """The handle is closed, negative, of another sort, or refused by the driver. The caller's fd is untouched."""


class BadArgumentError(XsemError, ValueError):
    """An argument that cannot be right; nothing was passed to the driver."""


class ReleasedError(XsemError, RuntimeError):
    """The object, or the device that it belongs to, has been released; or the `OwnedHandle` was closed."""


class BusyError(XsemError, RuntimeError):
    """The call is right but cannot be done in the present state."""


class WouldBlockError(BusyError):
    """The driver would hold the calling thread in this append until an earlier wait is met; nothing was appended."""


class EventNotAppendedError(XsemError, RuntimeError):
    """The event is not bound: no operation with it as ``signal_event`` has been appended since it was made or reset."""


class ForkedError(XsemError, RuntimeError):
    """The object was opened before ``os.fork()``; start the child with the "spawn" method and open it there."""


class WaitTimeoutError(XsemError, TimeoutError):
    """A host wait ran out. `pending` holds the operations not known to be done, oldest first.

    The first one is the stuck one, if xsem can identify it. Otherwise the message says so: neither the device nor an
    exporter in this process can read the values.

    It is a `TimeoutError`, hence an `OSError`. Nothing has been cancelled: the work is still pending.
    """

    def __init__(self, message: str, *, pending: tuple[PendingOp, ...] = (), **fields: Any) -> None:
        fields.setdefault("reason", "timeout")
        super().__init__(message, **fields)
        self.pending = pending


class OutOfMemoryError(XsemError, MemoryError):
    """The host or the device is out of memory."""


class DriverError(XsemError, RuntimeError):
    """The driver returned an error code that none of the other classes stands for.

    `from_earlier_work` is True where the code is not one that this call documents: asynchronous work that was
    enqueued earlier failed, and the arguments of this call are not to blame.
    """

    def __init__(self, message: str, *, from_earlier_work: bool = False, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.from_earlier_work = from_earlier_work


class DeviceLostError(DriverError):
    """The device or its context is gone; nothing on it can be used any more."""
