"""The driver interface: everything that a backend uses of xsem, together with xsem.types and xsem.errors.

A backend contains no policy. The facade checks arguments before it calls a driver. The facade also owns object
lifetimes, timeouts, diagnosis and the application's handles. `docs/authoring-a-backend.md` describes how to write a
backend.

Tokens
    A token is a value of the backend's choice, for example an int or an object. The facade stores a token and passes it
    back, and never reads its content.
Points
    A point is the token of one completion. An append with ``want_point=True`` returns a point. `DeviceDriver.done`
    queries it, `DeviceDriver.wait` waits for it, and `DeviceDriver.release_point` releases it.
Threads
    The facade serialises the calls on one `CommandListDriver`. Any thread may make any other call at any time. The
    facade makes no call in a forked child.
Blocking
    `DeviceDriver.wait` and `DeviceDriver.host_wait` may block. The releases of semaphores, memory, mappings and host
    buffers may block unless `Capabilities.release_never_blocks` is declared. An append may block unless
    `Capabilities.append_never_blocks` is declared. No other call may block.
Errors
    A driver raises classes of xsem.errors with ``call``, ``code`` and ``code_name``. The facade adds ``backend``.
    A failure of earlier work is a `DriverError` with ``from_earlier_work=True``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, Literal, NoReturn, Protocol, TypeAlias

from pluggy import HookimplMarker, HookspecMarker

from xsem.data.file_descriptors import DriverFd, duplicate_fd, same_open_file
from xsem.data.handles import own
from xsem.errors import UnsupportedError, XsemError, what
from xsem.types import (
    Capabilities,
    DeviceInfo,
    HealthCheck,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

__all__ = [
    "SPI_OLDEST",
    "SPI_VERSION",
    "Backend",
    "CommandListDriver",
    "DeviceDriver",
    "DriverFd",
    "Fate",
    "ImportFailure",
    "PreparedCall",
    "Register",
    "Token",
    "duplicate_fd",
    "failed_check",
    "hookimpl",
    "own",
    "same_open_file",
]

SPI_VERSION: Final = 1
"""The version of the driver interface that this xsem implements."""
SPI_OLDEST: Final = 1
"""The oldest version that this xsem accepts. Each version is accepted for two minor releases after its successor."""

hookimpl: Final = HookimplMarker("xsem")
"""Decorator for a plugin's implementation of `xsem_register_backends`."""
hookspec: Final = HookspecMarker("xsem")

Token: TypeAlias = Any
"""A value of the backend's choice that stands for one object. The facade never reads its content."""
Fate: TypeAlias = Literal["taken", "left", "unknown"]
"""The state of an imported handle after a failure, see `ImportFailure`."""


class Register(Protocol):
    """The function that the hook receives. The hook calls it once for each backend."""

    def __call__(self, backend: Backend, /) -> None: ...


@hookspec
def xsem_register_backends(register: Register) -> None:
    """Register the backends of a plugin. This is the only hook.

    The hook belongs into the module that an entry point of the group ``xsem`` names. This module must import without
    the vendor library.

    Parameters
    ----------
    register : Register
        Function to call once for each backend.

    Examples
    --------
    ::

        @hookimpl
        def xsem_register_backends(register: Register) -> None:
            register(AcmeBackend())
    """


def failed_check(name: str, error: Exception, remedy: str = "") -> HealthCheck:
    """Make a failed check from an error, for `Backend.checks`.

    Parameters
    ----------
    name : str
        Name of the checked item.
    error : Exception
        An `XsemError` gives its message and the driver's code as `HealthCheck.detail`, and its likely causes as
        `HealthCheck.causes`.
    remedy : str
        Instruction to the user.

    Returns
    -------
    HealthCheck
        A check with ``ok=False``.

    Examples
    --------
    >>> failed_check("driver", OSError("libacme.so is missing"), "install the Acme driver").detail
    'OSError: libacme.so is missing'
    """
    if isinstance(error, XsemError):
        return HealthCheck(name=name, ok=False, detail=what(error), remedy=remedy, causes=error.likely_causes)
    return HealthCheck(name=name, ok=False, detail=f"{type(error).__name__}: {error}", remedy=remedy)


def _unsupported(driver: object, method: str) -> NoReturn:
    raise UnsupportedError(f"{type(driver).__name__} does not implement {method}", capability=method)


def _listed(values: Any) -> Sequence[int | None]:
    return values if isinstance(values, tuple | list) else (values,)


class Backend(ABC):
    """One vendor API.

    The plugin makes the backend when xsem loads it. The backend loads the vendor library in `devices` or later, never
    earlier.

    Examples
    --------
    >>> class AcmeBackend(Backend):
    ...     name = "acme"
    ...     spi_version = 1
    ...     def devices(self):
    ...         return [DeviceInfo(id="acme:0", backend="acme", index=0, name="Acme")]
    ...     def open(self, index):
    ...         return AcmeDevice()
    >>> AcmeBackend().devices()[0].id
    'acme:0'
    """

    name: ClassVar[str]
    """Name of the backend, for example ``"acme"``. Users write it before the colon of a device's id."""
    spi_version: ClassVar[int]
    """Version of the driver interface that the backend was written for: a literal such as ``1``, not `SPI_VERSION`."""

    @abstractmethod
    def devices(self) -> Sequence[DeviceInfo]:
        """List all devices.

        Returns
        -------
        sequence of DeviceInfo
            In the driver's order. The ``index`` of each device is its position.

        Raises
        ------
        BackendUnavailableError
            The vendor library, a package or a permission is missing. The message names it and says what to do.
        """

    @abstractmethod
    def open(self, index: int) -> DeviceDriver:
        """Open a device.

        Parameters
        ----------
        index : int
            Position of the device in `devices`.

        Returns
        -------
        DeviceDriver
            A new driver at each call. The facade calls its `DeviceDriver.close` once.

        Raises
        ------
        XsemError
            The device cannot be opened.
        """

    def adopt(self, native: object) -> tuple[DeviceInfo, DeviceDriver]:
        """Open a device on the application's own context or device. Declared by Feature.NATIVE_CONTEXT.

        Parameters
        ----------
        native : object
            The application's context or device. The application keeps ownership, on success and on failure. `native`
            outlives the driver, and the driver does not destroy it.

        Returns
        -------
        DeviceInfo
            Description of the device.
        DeviceDriver
            A new driver at each call. The facade calls its `DeviceDriver.close` once.

        Raises
        ------
        BadArgumentError
            ``bad_native``: the backend does not take an object such as `native`. The message names what it takes.
        UnsupportedError
            The backend does not declare Feature.NATIVE_CONTEXT (default).
        """
        raise UnsupportedError(f"{self.name} cannot adopt a native context", capability="native_context")

    def details(self, index: int) -> Mapping[str, str]:
        """Return more facts about a device, for ``xsem devices --json``.

        Examples are versions, and the way in which functions were found.

        Parameters
        ----------
        index : int
            Position of the device in `devices`.

        Returns
        -------
        mapping of str to str
            Fact by name. Default: empty.
        """
        return {}

    def checks(self) -> Sequence[HealthCheck]:
        """Check libraries, permissions and kernel abilities, for ``xsem doctor``. This method never raises.

        Returns
        -------
        sequence of HealthCheck
            Default: empty. `failed_check` makes a check from an error.
        """
        return ()


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
    >>> failure = ImportFailure(UnsupportedError("no timelines", capability="semaphore.import"), fate="left")
    >>> failure.fate
    'left'
    """

    def __init__(self, error: Exception, *, fate: Fate) -> None:
        super().__init__(str(error))
        self.error = error
        self.fate: Fate = fate


class PreparedCall(Protocol):
    """A callable that appends a prepared wait or signal."""

    def __call__(self, values: Any, wait_points: Sequence[Token], want_point: bool, /) -> Token | None:
        """Append the wait or signal once.

        Parameters
        ----------
        values : int, None or tuple of int
            One timeline: an int. Several timelines: a tuple of ints. One binary semaphore: None. Each int is unsigned
            and has at most 64 bits.
        wait_points, want_point
            As described in `CommandListDriver`.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """


class DeviceDriver(ABC):
    """One open device.

    Each method that is not abstract has a default. Most defaults raise `UnsupportedError`.

    A driver must override what its `capabilities` declare. The facade checks this when the device is opened. A driver
    must refuse what its `capabilities` do not declare with `UnsupportedError`, also in a direct call. The conformance
    suite checks this.

    The facade owns every token that a driver returns. It releases each token once, with the release function that the
    method names.

    Examples
    --------
    >>> class AcmeDevice(DeviceDriver):
    ...     capabilities = Capabilities()   # declares nothing
    ...     def create_command_list(self):
    ...         return AcmeList()
    ...     def done(self, point):
    ...         return True
    ...     def release_point(self, point): ...
    ...     def close(self): ...
    >>> AcmeDevice().wait(1, timeout_ns=0)
    True
    """

    timeout_causes: Sequence[str] = ()
    """Likely causes of a timeout that are specific to this driver, one sentence each."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the device declares. The value is constant for the life of the driver."""

    @abstractmethod
    def create_command_list(self) -> CommandListDriver:
        """Create an in-order list of the driver's own.

        Returns
        -------
        CommandListDriver
            The facade calls its `CommandListDriver.close` once.
        """

    @abstractmethod
    def done(self, point: Token) -> bool:
        """Query a point. This method never blocks.

        Parameters
        ----------
        point : Token
            A point of an append, or of `open_event`.

        Returns
        -------
        bool
            Whether the point has been reached.

        Raises
        ------
        DriverError
            The point can never be reached, because the list's earlier work failed or the device is lost.
        """

    @abstractmethod
    def release_point(self, point: Token) -> None:
        """Release a point. Called once, when no append, wait or query uses the point any more."""

    @abstractmethod
    def close(self) -> None:
        """Close the device. Called once, after everything that was opened through it has been released."""

    # ---- import. `handle` is a duplicate for this call, or None if the descriptor has no fd and no NT handle.
    # Success: the driver calls handle.detach() if it took the handle. Otherwise the facade closes the handle.
    # Failure: the driver raises ImportFailure.
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Token:
        """Import a semaphore of a type in `Capabilities.semaphore_import`.

        Parameters
        ----------
        desc : SemaphoreDesc
            Description of the semaphore, checked by the facade.
        handle : OwnedHandle or None
            A duplicate of the application's fd or NT handle, for this call only. None if `desc` has no fd and no NT
            handle. On success, call ``handle.detach()`` if the driver took ownership of the duplicate. Otherwise leave
            `handle` open, and the facade closes it. On failure, `ImportFailure.fate` says what became of it.

        Returns
        -------
        Token
            The semaphore. The facade releases it with `release_semaphore`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception the facade treats the state of `handle` as unknown.
        UnsupportedError
            The device does not declare semaphore import (default).
        """
        _unsupported(self, "import_semaphore")

    def release_semaphore(self, semaphore: Token) -> None:
        """Release an imported or created semaphore. Called once, when no appended work uses it any more."""
        _unsupported(self, "release_semaphore")

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Token:
        """Import memory of a type in `Capabilities.memory_import`.

        Parameters
        ----------
        desc : MemoryDesc
            Description of the memory, checked by the facade.
        handle : OwnedHandle or None
            As in `import_semaphore`.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception the facade treats the state of `handle` as unknown.
        UnsupportedError
            The device does not declare memory import (default).
        """
        _unsupported(self, "import_memory")

    def map_buffer(self, memory: Token, offset: int, size: int) -> tuple[Token, int]:
        """Map the bytes from `offset` to ``offset + size`` of the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        offset, size : int
            Range in bytes. The facade has checked that it lies in the allocation.

        Returns
        -------
        Token
            The mapping. The facade releases it with `unmap_buffer`.
        int
            Device address of the first byte.
        """
        _unsupported(self, "map_buffer")

    def unmap_buffer(self, buffer: Token) -> None:
        """Release a mapping of `map_buffer`. Called once. This method may block."""
        _unsupported(self, "unmap_buffer")

    def release_memory(self, memory: Token) -> None:
        """Release imported or created memory. Called once, after all its mappings. This method may block."""
        _unsupported(self, "release_memory")

    # ---- images: Feature.MIPMAPPED_ARRAY, or Feature.IMAGE for images of one level at the start of the memory
    def map_mipmapped_array(self, memory: Token, desc: MipmapDesc) -> Token:
        """Map an image onto the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        desc : MipmapDesc
            Layout of the image, checked by the facade.

        Returns
        -------
        Token
            The image. The facade releases it with `release_array`.
        """
        _unsupported(self, "map_mipmapped_array")

    def mipmap_level(self, array: Token, level: int) -> Token:
        """Return one level of an image, for `CommandListDriver.append_level_copy`.

        Parameters
        ----------
        array : Token
            An image of `map_mipmapped_array`.
        level : int
            Number of the level, from 0.

        Returns
        -------
        Token
            The level. It lives as long as the image and has no release function.
        """
        _unsupported(self, "mipmap_level")

    def release_array(self, array: Token) -> None:
        """Release an image of `map_mipmapped_array`. Called once. This method may block."""
        _unsupported(self, "release_array")

    # ---- export: Capabilities.semaphore_export and Capabilities.memory_export
    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Token:
        """Create an exportable semaphore.

        Parameters
        ----------
        type : SemaphoreHandleType
            A type in `Capabilities.semaphore_export`.
        initial_value : int
            First value of a timeline; 0 for a binary semaphore.

        Returns
        -------
        Token
            The semaphore. The facade releases it with `release_semaphore`.

        Raises
        ------
        UnsupportedError
            The device does not declare `type` for export.
        """
        _unsupported(self, "create_semaphore")

    def export_semaphore(self, semaphore: Token) -> OwnedHandle | None:
        """Export a semaphore of `create_semaphore`.

        For a sync file, the facade calls this method at most once after each appended signal. The export consumes that
        signal.

        Parameters
        ----------
        semaphore : Token
            A semaphore of `create_semaphore`.

        Returns
        -------
        OwnedHandle or None
            A new handle at each call, owned by the caller. None for a sync file whose signal has completed already.
        """
        _unsupported(self, "export_semaphore")

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Token, int]:
        """Create exportable memory of at least `size` bytes.

        Parameters
        ----------
        type : MemoryHandleType
            A type in `Capabilities.memory_export`.
        size : int
            Smallest size in bytes.
        dedicated : bool
            Whether to make a dedicated allocation.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.
        int
            Allocated size in bytes.

        Raises
        ------
        UnsupportedError
            The device does not declare `type` for export.
        """
        _unsupported(self, "create_memory")

    def export_memory(self, memory: Token) -> OwnedHandle:
        """Export memory of `create_memory`.

        Parameters
        ----------
        memory : Token
            Memory of `create_memory`.

        Returns
        -------
        OwnedHandle
            A new handle at each call, owned by the caller.
        """
        _unsupported(self, "export_memory")

    # ---- semaphores on the host: Feature.READ_VALUE, HOST_SIGNAL, HOST_WAIT
    def semaphore_value(self, semaphore: Token) -> int:
        """Return the current value of a timeline."""
        _unsupported(self, "semaphore_value")

    def host_signal(self, semaphore: Token, value: int | None) -> None:
        """Signal a semaphore from the host.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            New value of a timeline; None for a binary semaphore.
        """
        _unsupported(self, "host_signal")

    def host_wait(self, semaphore: Token, value: int | None, timeout_ns: int) -> bool:
        """Wait for a semaphore on the host. A wait that succeeds resets a binary semaphore.

        The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            Value of a timeline to wait for; None for a binary semaphore.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True if the wait succeeded; False if `timeout_ns` elapsed first.
        """
        _unsupported(self, "host_wait")

    # ---- other
    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Write the device's requirements for an NvSciSync object into an attribute list.

        Parameters
        ----------
        attributes : int
            The NvSciSyncAttrList. The application keeps ownership.
        signal, wait : bool
            Intended use of the NvSciSync object.
        """
        _unsupported(self, "nvscisync_attributes")

    def host_buffer(self, size: int) -> tuple[Token, int]:
        """Allocate page-locked host memory for appended copies.

        Parameters
        ----------
        size : int
            Size in bytes.

        Returns
        -------
        Token
            The host buffer. The facade releases it with `release_host_buffer`.
        int
            Address of the first byte.
        """
        _unsupported(self, "host_buffer")

    def release_host_buffer(self, buffer: Token) -> None:
        """Release a host buffer of `host_buffer`. Called once. This method may block."""
        _unsupported(self, "release_host_buffer")

    def open_event(self, native: object) -> Token:
        """Open a borrowed event as a point. Declared by Feature.NATIVE_EVENTS.

        Parameters
        ----------
        native : object
            An event of another library. Its owner has appended it already, and keeps ownership.

        Returns
        -------
        Token
            A point. The facade releases it with `release_point`.

        Raises
        ------
        TypeError
            `native` is an object of another framework. The facade raises BadArgumentError (``not_an_event``) for it.
        """
        _unsupported(self, "open_event")

    def open_command_list(self, stream: object, in_order: bool) -> CommandListDriver:
        """Open the application's own queue as a borrowed list.

        Parameters
        ----------
        stream : object
            The queue, as an object or a native handle. The application keeps ownership. The driver keeps a reference to
            `stream` as long as it uses the queue.
        in_order : bool
            False: the queue may execute its commands in another order than they were appended.

        Returns
        -------
        CommandListDriver
            A driver for the queue. Its `CommandListDriver.close` does not close the queue.

        Raises
        ------
        WrongDeviceError
            The stream belongs to another device or context.
        BadArgumentError
            ``out_of_order``: the queue is out of order. ``null_stream``: `stream` is the bare int 0.
        TypeError
            `stream` is an object of another framework. The facade raises BadArgumentError (``not_a_stream``) for it.
        """
        _unsupported(self, "open_command_list")

    # ---- optional, with working defaults
    def stream_identity(self, stream: object) -> int | None:
        """Return the identity of the application's own queue, without a driver call.

        The facade calls this method before `open_command_list`. For a known identity, the facade uses the existing list
        and does not call `open_command_list`.

        Parameters
        ----------
        stream : object
            As for `open_command_list`.

        Returns
        -------
        int or None
            The `CommandListDriver.key` of a list on the queue. None, the default: the key is unknown before
            `open_command_list`.

        Raises
        ------
        WrongDeviceError, BadArgumentError, TypeError
            As for `open_command_list`, if the object itself shows the error.
        """
        return None

    def wait(self, point: Token, timeout_ns: int) -> bool:
        """Block until a point is reached. The default polls `done`.

        The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        point : Token
            A point of an append, or of `open_event`.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True if the point has been reached; False if `timeout_ns` elapsed first.

        Raises
        ------
        DriverError
            As `done`.
        """
        deadline = time.monotonic_ns() + timeout_ns
        pause = 20e-6
        while not self.done(point):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            time.sleep(min(pause, left / 1e9))
            pause = min(pause * 1.5, 1e-3)
        return True

    def quiet(self) -> AbstractContextManager[None]:
        """Return the context for calls that xsem makes on its own account, such as polls and releases.

        The facade enters it around each such call. On CUDA it sets the relaxed stream-capture mode. Default: no effect.
        """
        return nullcontext()

    def native_handle(self, token: Token | None) -> int:
        """Return the vendor's handle of an object.

        Parameters
        ----------
        token : Token or None
            Token of the object; None for the device's own handle (context, queue).

        Returns
        -------
        int
            The handle. The driver keeps ownership. Default: the token itself if it is an int.

        Raises
        ------
        UnsupportedError
            The object has no native handle.
        """
        if isinstance(token, int):
            return token
        raise UnsupportedError("this object has no native handle", capability="native_handle")

    def dlpack_device(self) -> tuple[int, int]:
        """Return the DLPack device type and id of mapped buffers.

        With device type 1 (CPU), the facade lets the host access mapped buffers directly.

        Returns
        -------
        tuple of (int, int)
            Default: (1, 0), the CPU.
        """
        return (1, 0)


class CommandListDriver(ABC):
    """One in-order list.

    Order: an append has reached the vendor's driver, in program order, when it returns. A backend must not queue
    appends in a thread of its own. The exception is `host`: its queue is that thread.

    Whole or not at all: an append that raises has no effect.

    Failures: if earlier work of the list failed, an append raises `DriverError` with ``from_earlier_work=True``.

    All appends share two parameters and the return value:

    - ``wait_points``: points of this device. The operation starts after all of them are reached.
    - ``want_point``: True requests a point, which is reached when the operation is complete.
    - Returns: a new point if `want_point` is True, otherwise None. The facade releases it with
      `DeviceDriver.release_point`.

    Examples
    --------
    >>> class AcmeList(CommandListDriver):
    ...     key = 1   # the native queue
    ...     def append_barrier(self, wait_points, want_point):
    ...         return 7 if want_point else None
    ...     def close(self): ...
    >>> AcmeList().append_barrier((), want_point=True)
    7
    """

    key: int
    """Identity of the native queue. Two drivers with the same key are one queue for the facade.

    If `DeviceDriver.open_command_list` returns a driver with a known key, the facade closes the new driver at once."""

    @abstractmethod
    def append_barrier(self, wait_points: Sequence[Token], want_point: bool) -> Token | None:
        """Append a barrier: later work waits for all earlier work and for `wait_points`.

        The facade also uses the point of a barrier as the marker after which it releases objects.

        Parameters
        ----------
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the list. Called once. A borrowed queue is not closed.

        The list is idle at this time, except a driver whose `key` is known already.
        """

    # ---- required by the device's capabilities, as above
    def append_wait(
        self,
        semaphores: Sequence[Token],
        params: Sequence[WaitParams],
        wait_points: Sequence[Token],
        acquire: Sequence[Token],
        want_point: bool,
    ) -> Token | None:
        """Append a wait: later work waits for `wait_points`, then for all semaphores.

        For an imported sync file, the facade calls this method at most once. For a sync file of
        `DeviceDriver.create_semaphore`, the facade calls it at most once for each signal.

        Parameters
        ----------
        semaphores : sequence of Token
            The semaphores; not empty, no semaphore twice.
        params : sequence of WaitParams
            One item for each semaphore.
        acquire : sequence of Token
            Memory that the device takes over after the wait.
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """
        _unsupported(self, "append_wait")

    def append_signal(
        self,
        semaphores: Sequence[Token],
        params: Sequence[SignalParams],
        wait_points: Sequence[Token],
        release: Sequence[Token],
        want_point: bool,
    ) -> Token | None:
        """Append a signal: after earlier work and `wait_points`, hand over the memory, then signal all semaphores.

        Parameters
        ----------
        semaphores : sequence of Token
            The semaphores; not empty, no semaphore twice.
        params : sequence of SignalParams
            One item for each semaphore.
        release : sequence of Token
            Memory that the device hands over before the signal.
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """
        _unsupported(self, "append_signal")

    def prepare_wait(self, semaphores: Sequence[Token]) -> PreparedCall:
        """Prepare a wait for timelines, or for one binary semaphore, for repeated appends without memory.

        Parameters
        ----------
        semaphores : sequence of Token
            The timelines, or the binary semaphore.

        Returns
        -------
        PreparedCall
            Each call appends the wait. The rules of all appends apply. The default calls `append_wait`.
        """
        def call(values: Any, wait_points: Sequence[Token], want_point: bool) -> Token | None:
            return self.append_wait(semaphores, [WaitParams(value=each) for each in _listed(values)], wait_points, (),
                                    want_point)

        return call

    def prepare_signal(self, semaphores: Sequence[Token]) -> PreparedCall:
        """Prepare a signal, as `prepare_wait` prepares a wait. The default calls `append_signal`."""
        def call(values: Any, wait_points: Sequence[Token], want_point: bool) -> Token | None:
            return self.append_signal(semaphores, [SignalParams(value=each) for each in _listed(values)], wait_points,
                                      (), want_point)

        return call

    def append_copy(
        self, dst: int, src: int, size: int, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Append a copy between buffers.

        Parameters
        ----------
        dst, src : int
            Addresses in mappings of `DeviceDriver.map_buffer` or in host buffers of `DeviceDriver.host_buffer`. The two
            ranges do not overlap.
        size : int
            Number of bytes.
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """
        _unsupported(self, "append_copy")

    def append_level_copy(
        self, level: Token, address: int, read: bool, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Append a copy between an image level and a host buffer.

        Parameters
        ----------
        level : Token
            A level of `DeviceDriver.mipmap_level`.
        address : int
            Address in a host buffer of `DeviceDriver.host_buffer`. The rows there have no padding.
        read : bool
            True: from the level to the host buffer. False: from the host buffer to the level.
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """
        _unsupported(self, "append_level_copy")

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Append a fill of a buffer with a repeated pattern.

        Parameters
        ----------
        dst : int
            Address in a mapping of `DeviceDriver.map_buffer` or in a host buffer of `DeviceDriver.host_buffer`.
        pattern : bytes
            Bytes to repeat. The length of the pattern divides `size`.
        size : int
            Number of bytes to fill.
        wait_points, want_point
            As described in the class.

        Returns
        -------
        Token or None
            A point if `want_point` is True.
        """
        _unsupported(self, "append_fill")

    # ---- Feature.RECORDING
    def begin_recording(self) -> None:
        """Begin a recording. Appends are recorded and not executed until `end_recording`."""
        _unsupported(self, "begin_recording")

    def end_recording(self) -> Token:
        """End the recording.

        Returns
        -------
        Token
            The recording. The facade releases it with `release_recording`.
        """
        _unsupported(self, "end_recording")

    def replay(self, recording: Token, values: Sequence[tuple[Token, int, int]]) -> None:
        """Append the work of a recording with new timeline values.

        Parameters
        ----------
        recording : Token
            A recording of `end_recording`.
        values : sequence of (Token, int, int)
            Semaphore, value to wait for, value to signal. A timeline that is not listed keeps its recorded values.
        """
        _unsupported(self, "replay")

    def release_recording(self, recording: Token) -> None:
        """Release a recording. Called once, when no replay of it is pending."""
        _unsupported(self, "release_recording")

    # ---- optional, with working defaults
    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` now, on the caller's thread.

        `work` only enqueues commands on this queue. `host` differs: it puts `work` into its queue and calls it in turn.

        Parameters
        ----------
        work : callable
            Function of the application. Its exceptions pass through.
        """
        work()

    def capturing(self) -> bool:
        """Return whether another library's capture (CUDA graph) of the queue is active.

        The facade calls this method only if the application can capture the queue.
        """
        return False
