"""Tree of error classes. Every error can be pickled and has the fields of `XsemError`.

    XsemError
    ├── BackendUnavailableError (ImportError)    the plugin, its package or its driver library is missing
    ├── DeviceNotFoundError (LookupError)        no device or several devices match
    ├── WrongDeviceError (ValueError)            an object, stream or descriptor of another device
    ├── UnsupportedError (NotImplementedError)   the device or its driver does not support the operation
    ├── BadHandleError (ValueError)              the handle is not valid for its type
    ├── BadArgumentError (ValueError)            any other invalid argument
    ├── ReleasedError (RuntimeError)             use after release()
    ├── BusyError (RuntimeError)                 a valid call that is not possible in the present state
    │   └── WouldBlockError                      the driver would block the caller in this append
    ├── EventNotAppendedError (RuntimeError)     the event is not bound to an operation yet
    ├── ForkedError (RuntimeError)               the object was opened before os.fork()
    ├── RingEndedError (RuntimeError)            a ring of frames has no further frame for this consumer
    ├── WaitTimeoutError (TimeoutError)          a host wait reached its timeout; `pending` lists the operations
    ├── OutOfMemoryError (MemoryError)           the host or the device is out of memory
    └── DriverError (RuntimeError)               any other error code of the driver
        └── DeviceLostError                      the device or its context is lost
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
    "RingEndedError",
    "UnsupportedError",
    "WaitTimeoutError",
    "WouldBlockError",
    "WrongDeviceError",
    "XsemError",
]


class XsemError(Exception):
    """Base class of all errors of xsem. Each parameter is also an attribute.

    Parameters
    ----------
    message : str
        One sentence for the user.
    reason : str
        Stable identifier for programs, listed in ``docs/errors.md``.
    backend : str, optional
        Name of the backend, for example ``"cuda"``.
    call : str, optional
        Name of the vendor function, for example ``"cuImportExternalSemaphore"``.
    code, code_name : int, str, optional
        The error code that the function returned, and its name.
    handle_type : SemaphoreHandleType or MemoryHandleType, optional
        Handle type of the argument.
    likely_causes : tuple of str
        Likely causes, most likely first.

    Examples
    --------
    >>> import xsem
    >>> try:
    ...     xsem.SignalParams(value=-1)
    ... except xsem.XsemError as error:
    ...     print(error.reason)
    value_out_of_range
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

    # Each builtin base class has its own __reduce__, and no such method keeps the keyword fields.
    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(cls: type[XsemError], args: tuple[Any, ...], fields: dict[str, Any]) -> XsemError:
    # The builtin class that determines the object layout must create the object. For OutOfMemoryError, that class is
    # Exception. cls.__new__ is MemoryError's and refuses the class.
    layout: Any = cls
    while layout.__module__ != "builtins":
        layout = layout.__base__
    error: XsemError = layout.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def what(error: XsemError) -> str:
    """Return the message of an error with the driver's error code, without the likely causes."""
    if error.call is None or error.code is None:
        return error.message
    return f"{error.message} [{returned(error)}]"


def returned(error: XsemError) -> str:
    """Return the text about the failed call: its name and its code, with the code's name."""
    code = error.code or 0
    number = f"{code:#x}" if code >= 2**31 else code   # NTSTATUS and HRESULT are known by their digits
    return f"{error.call} returned {error.code_name or 'an unknown code'} ({number})"


class BackendUnavailableError(XsemError, ImportError):
    """The backend, its package or its driver library is missing, or the backend failed to load.

    Examples
    --------
    >>> import xsem
    >>> try:
    ...     xsem.open_device("acme")
    ... except xsem.BackendUnavailableError as error:
    ...     print(error.reason)
    unknown_backend
    """


class DeviceNotFoundError(XsemError, LookupError):
    """No device matches, or several devices match.

    Attributes
    ----------
    candidates : tuple of DeviceInfo
        The devices that the caller can choose from.

    Examples
    --------
    >>> import xsem
    >>> try:
    ...     xsem.open_device("host:1")
    ... except xsem.DeviceNotFoundError as error:
    ...     print(error.reason, [info.id for info in error.candidates])
    no_such_device ['host:0']
    """

    def __init__(self, message: str, *, candidates: tuple[DeviceInfo, ...] = (), **fields: Any) -> None:
        super().__init__(message, **fields)
        self.candidates = candidates


class WrongDeviceError(XsemError, ValueError):
    """An object, stream or descriptor belongs to another device.

    Attributes
    ----------
    expected : str
        The device, driver or context that the call or the descriptor requires.
    actual : str
        The device, driver or context that was found instead.
    """

    def __init__(self, message: str, *, expected: str, actual: str, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.expected = expected
        self.actual = actual


class UnsupportedError(XsemError, NotImplementedError):
    """The device does not declare a capability (``unsupported``), or the driver does not support the operation.

    Attributes
    ----------
    capability : str
        Name of the capability, for example ``"semaphore.import.sync_fd"``.
    """

    def __init__(self, message: str, *, capability: str, **fields: Any) -> None:
        fields.setdefault("reason", "unsupported")
        super().__init__(message, **fields)
        self.capability = capability


class BadHandleError(XsemError, ValueError):
    """The handle is closed, negative, of another kind, or refused by the driver. The caller's handle does not change.

    Examples
    --------
    >>> import xsem
    >>> try:
    ...     xsem.SemaphoreDesc.timeline_fd(-5, device_uuid=None)
    ... except xsem.BadHandleError as error:
    ...     print(error.reason)
    negative_fd
    """


class BadArgumentError(XsemError, ValueError):
    """An argument is invalid. Nothing was imported, created or appended.

    Examples
    --------
    >>> import xsem
    >>> try:
    ...     xsem.WaitParams(timeout_ms=-1)
    ... except xsem.BadArgumentError as error:
    ...     print(error.reason)
    timeout_out_of_range
    """


class ReleasedError(XsemError, RuntimeError):
    """The object or its device was released, or the `OwnedHandle` was closed or detached."""


class BusyError(XsemError, RuntimeError):
    """The call is valid but not possible in the present state."""


class WouldBlockError(BusyError):
    """The driver would block the calling thread in this append until an earlier wait is met. Nothing was appended."""


class EventNotAppendedError(XsemError, RuntimeError):
    """The event is not bound to an operation.

    The event was created or reset, and no later append named it as ``signal_event``.
    """


class ForkedError(XsemError, RuntimeError):
    """The object was opened before ``os.fork()``. Start the child with the "spawn" method and open the object there."""


class RingEndedError(XsemError, RuntimeError):
    """A ring of frames has no further frame for this consumer. Its reader can only be closed."""


class WaitTimeoutError(XsemError, TimeoutError):
    """A host wait reached its timeout. Nothing was cancelled: the work is still pending.

    The error is a `TimeoutError` and therefore an `OSError`.

    Attributes
    ----------
    pending : tuple of PendingOp
        The operations that are not known to be complete, oldest first. If xsem can identify the operation that blocks
        the others, that operation comes first. Otherwise the message says that neither the device nor an exporter in
        this process can read the values.
    """

    def __init__(self, message: str, *, pending: tuple[PendingOp, ...] = (), **fields: Any) -> None:
        fields.setdefault("reason", "timeout")
        super().__init__(message, **fields)
        self.pending = pending


class OutOfMemoryError(XsemError, MemoryError):
    """The host or the device is out of memory."""


class DriverError(XsemError, RuntimeError):
    """The driver returned an error code without a separate class, or earlier work failed.

    Attributes
    ----------
    from_earlier_work : bool
        True if asynchronous work that was enqueued earlier failed. The arguments of this call are not the cause. An
        example is a code that the documentation of the driver's function does not list.
    """

    def __init__(self, message: str, *, from_earlier_work: bool = False, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.from_earlier_work = from_earlier_work


class DeviceLostError(DriverError):
    """The device or its context is lost. No object on it is usable any more."""
