"""xsem.spi: all that a backend sees. Backends import xsem.spi, xsem.types and xsem.errors, nothing more of xsem.

A backend has no policy: arguments are checked already; lifetimes, timeouts, diagnosis and file descriptors are the
facade's. Tokens are whatever the backend likes (an int, an object); the facade keeps and returns them and never looks
inside.

Threads: the facade serialises the calls on one `CommandListDriver`; all else may be called from any thread, never in a
forked child. Nothing may block but `wait`, `host_wait` and, unless `Capabilities.release_never_blocks` is declared, the
releases of semaphores, memory, mappings and host buffers. Failures are classes of xsem.errors with ``call``, ``code``
and ``code_name``; the facade adds ``backend``.
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
    "Register",
    "Token",
    "duplicate_fd",
    "failed_check",
    "hookimpl",
    "own",
    "same_open_file",
]

SPI_VERSION: Final = 1
"""What this xsem implements."""
SPI_OLDEST: Final = 1
"""The oldest it still accepts: each version lives two minor releases beyond its successor."""

hookimpl: Final = HookimplMarker("xsem")
hookspec: Final = HookspecMarker("xsem")

Token: TypeAlias = Any
Fate: TypeAlias = Literal["taken", "left", "unknown"]


class Register(Protocol):
    """What the hook is given: call it once per backend."""

    def __call__(self, backend: Backend, /) -> None: ...


@hookspec
def xsem_register_backends(register: Register) -> None:
    """The one hook, in the module that an entry point of the group ``xsem`` names.

    That module must import without the vendor library::

        @hookimpl
        def xsem_register_backends(register: Register) -> None:
            register(AcmeBackend())
    """


def failed_check(name: str, error: Exception, remedy: str = "") -> HealthCheck:
    """Make a failed check of an error, for `Backend.checks`.

    Parameters
    ----------
    name : str
        Name of the checked item.
    error : Exception
        An `XsemError` gives its message and the driver's code as `HealthCheck.detail`, and its likely causes as
        `HealthCheck.causes`.
    remedy : str
        Instruction to the user.
    """
    if isinstance(error, XsemError):
        return HealthCheck(name=name, ok=False, detail=what(error), remedy=remedy, causes=error.likely_causes)
    return HealthCheck(name=name, ok=False, detail=f"{type(error).__name__}: {error}", remedy=remedy)


def _unsupported(driver: object, method: str) -> NoReturn:
    raise UnsupportedError(f"{type(driver).__name__} does not implement {method}", capability=method)


def _listed(values: Any) -> Sequence[int]:
    return (values,) if isinstance(values, int) else values


class Backend(ABC):
    """One vendor API. Made when its plugin is loaded; loads the vendor library no earlier than `devices`."""

    name: ClassVar[str]
    """``"acme"``: what users write before the colon."""
    spi_version: ClassVar[int]
    """A literal, e.g. ``1``: what this code was written for, not `SPI_VERSION`."""

    @abstractmethod
    def devices(self) -> Sequence[DeviceInfo]:
        """All devices, in the driver's order; their ``index`` is their position.

        Raises
        ------
        BackendUnavailableError
            The vendor library, a package or a permission is missing; the message says which, and what to do.
        """

    @abstractmethod
    def open(self, index: int) -> DeviceDriver:
        """Open the device with that index; each call gives a driver of its own."""

    def adopt(self, native: object) -> tuple[DeviceInfo, DeviceDriver]:
        """Open on the application's own context or device; declared by Feature.NATIVE_CONTEXT.

        `native` stays the application's: it outlives the driver and is not destroyed by it.

        Raises
        ------
        BadArgumentError
            ``bad_native``: `native` is not what this backend takes; the message names it.
        """
        raise UnsupportedError(f"{self.name} cannot adopt a native context", capability="native_context")

    def details(self, index: int) -> Mapping[str, str]:
        """More about a device for ``xsem devices --json``: how functions were found, versions. Default: nothing."""
        return {}

    def checks(self) -> Sequence[HealthCheck]:
        """What ``xsem doctor`` prints: libraries, permissions, kernel abilities. Never raises. Default: nothing."""
        return ()


class ImportFailure(Exception):
    """Raised by the import functions of `DeviceDriver`.

    Parameters
    ----------
    error : Exception
        What the user is to see.
    fate : "taken", "left" or "unknown"
        What became of the handle. "unknown": the facade asks the kernel, and rather leaks the number than close
        another's.
    """

    def __init__(self, error: Exception, *, fate: Fate) -> None:
        super().__init__(str(error))
        self.error = error
        self.fate: Fate = fate


class DeviceDriver(ABC):
    """One open device. The defaults of all that is not abstract raise `UnsupportedError`.

    What `capabilities` declares must be overridden (checked when the device is opened) and what it does not declare
    must be refused with `UnsupportedError` even when called directly (checked by the conformance suite).
    """

    timeout_causes: Sequence[str] = ()
    """Likely causes of a timeout that are specific to this driver, one sentence each."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Constant for the life of the driver."""

    @abstractmethod
    def create_command_list(self) -> CommandListDriver:
        """A new in-order list of the driver's own."""

    @abstractmethod
    def done(self, point: Token) -> bool:
        """Whether a point that an append returned has been reached. Never blocks.

        Raises if it can never be reached (the list's earlier work failed, the device is lost).
        """

    @abstractmethod
    def release_point(self, point: Token) -> None:
        """Forget a point; called once, when no append, wait or query uses it any more."""

    @abstractmethod
    def close(self) -> None:
        """Close the device; called once, after everything opened through it has been released."""

    # ---- import. `handle` is this call's own duplicate, or None where the descriptor has no fd or NT handle.
    # Success: handle.detach() if the driver took it, otherwise leave it alone (the facade closes it).
    # Failure: raise ImportFailure.
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Token:
        """Import a semaphore of a type in `Capabilities.semaphore_import`."""
        _unsupported(self, "import_semaphore")

    def release_semaphore(self, semaphore: Token) -> None:
        """Release an imported or created semaphore; called once, when no appended work uses it any more."""
        _unsupported(self, "release_semaphore")

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Token:
        """Import memory of a type in `Capabilities.memory_import`."""
        _unsupported(self, "import_memory")

    def map_buffer(self, memory: Token, offset: int, size: int) -> tuple[Token, int]:
        """Map ``offset … offset + size`` of the memory: token and device address."""
        _unsupported(self, "map_buffer")

    def unmap_buffer(self, buffer: Token) -> None:
        """Undo `map_buffer`; may block."""
        _unsupported(self, "unmap_buffer")

    def release_memory(self, memory: Token) -> None:
        """Release imported or created memory, after all its mappings; may block."""
        _unsupported(self, "release_memory")

    # ---- images: Feature.MIPMAPPED_ARRAY, or Feature.IMAGE where there is no more than that
    def map_mipmapped_array(self, memory: Token, desc: MipmapDesc) -> Token:
        """Map an image onto the memory."""
        _unsupported(self, "map_mipmapped_array")

    def mipmap_level(self, array: Token, level: int) -> Token:
        """One level, for `CommandListDriver.append_level_copy`; it lives as long as the array."""
        _unsupported(self, "mipmap_level")

    def release_array(self, array: Token) -> None:
        """Undo `map_mipmapped_array`; may block."""
        _unsupported(self, "release_array")

    # ---- export: what `semaphore_export` and `memory_export` declare
    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Token:
        """A new exportable semaphore; `initial_value` is 0 for binary ones."""
        _unsupported(self, "create_semaphore")

    def export_semaphore(self, semaphore: Token) -> OwnedHandle | None:
        """A fresh handle each time, owned by the caller; None of a sync file whose signal is done already.

        A sync file is asked for once after each signal that was appended, and the signal is used up.
        """
        _unsupported(self, "export_semaphore")

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Token, int]:
        """New exportable memory of at least `size` bytes: token and the size really allocated."""
        _unsupported(self, "create_memory")

    def export_memory(self, memory: Token) -> OwnedHandle:
        """A fresh handle each time, owned by the caller."""
        _unsupported(self, "export_memory")

    # ---- the host's side of a semaphore: Feature.READ_VALUE, HOST_SIGNAL, HOST_WAIT
    def semaphore_value(self, semaphore: Token) -> int:
        """A timeline's value now."""
        _unsupported(self, "semaphore_value")

    def host_signal(self, semaphore: Token, value: int | None) -> None:
        """Signal from the host; `value` is None for binary semaphores."""
        _unsupported(self, "host_signal")

    def host_wait(self, semaphore: Token, value: int | None, timeout_ns: int) -> bool:
        """Wait on the host, at most `timeout_ns`; whether it was met. A met binary wait resets the semaphore."""
        _unsupported(self, "host_wait")

    # ---- other
    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Write into the NvSciSyncAttrList `attributes` what the device needs of an NvSciSync object for that use."""
        _unsupported(self, "nvscisync_attributes")

    def host_buffer(self, size: int) -> tuple[Token, int]:
        """Page-locked host memory that appended copies can use: token and address."""
        _unsupported(self, "host_buffer")

    def release_host_buffer(self, buffer: Token) -> None:
        """Undo `host_buffer`; may block."""
        _unsupported(self, "release_host_buffer")

    def open_event(self, native: object) -> Token:
        """A foreign event, already appended by its owner, as a point: Feature.NATIVE_EVENTS.

        Raises
        ------
        TypeError
            `native` is another framework's object.
        """
        _unsupported(self, "open_event")

    def open_command_list(self, stream: object, in_order: bool) -> CommandListDriver:
        """The application's own queue, borrowed; the driver keeps `stream` alive while it is used.

        Raises
        ------
        WrongDeviceError
            The stream belongs to another device or context.
        BadArgumentError
            ``out_of_order``, or ``null_stream`` for the bare int 0.
        TypeError
            `stream` is another framework's object.
        """
        _unsupported(self, "open_command_list")

    # ---- optional, with working defaults
    def wait(self, point: Token, timeout_ns: int) -> bool:
        """Block until the point is reached, at most `timeout_ns`. Called in slices of at most 50 ms; default polls."""
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
        """Entered around calls that xsem makes for itself (CUDA: relaxed stream-capture mode)."""
        return nullcontext()

    def native_handle(self, token: Token | None) -> int:
        """The vendor's handle behind a token, or the device's own (context, queue) for None; default: int tokens."""
        if isinstance(token, int):
            return token
        raise UnsupportedError("there is no native handle for this", capability="native_handle")

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack device type and id of mapped buffers; default: (1, 0), the CPU."""
        return (1, 0)


class CommandListDriver(ABC):
    """One in-order list. Every append returns a *point* (one-shot completion token) if `want_point`, else None.

    When an append returns it has been handed to the driver, in program order: no queueing in a thread of one's own
    (`host` excepted, whose queue is that thread). An append takes effect whole or not at all.
    """

    key: int
    """The native stream: two wrappers of one stream share the facade's books."""

    @abstractmethod
    def append_barrier(self, wait_points: Sequence[Token], want_point: bool) -> Token | None:
        """Later work waits for earlier work and for `wait_points`. Also the marker that the facade releases by."""

    @abstractmethod
    def close(self) -> None:
        """Called once, when the list is idle. A borrowed stream is left alone."""

    # ---- needed by what the device declares, as above
    def append_wait(
        self,
        semaphores: Sequence[Token],
        params: Sequence[WaitParams],
        wait_points: Sequence[Token],
        acquire: Sequence[Token],
        want_point: bool,
    ) -> Token | None:
        """Later work waits for `wait_points`, then for all semaphores; `acquire` is memory taken over after that.

        Of a sync file it is asked for once: for an imported one, or for each signal of one that was made here.
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
        """After earlier work and `wait_points`: hand over the memory in `release`, then signal all semaphores."""
        _unsupported(self, "append_signal")

    def prepare_wait(self, semaphores: Sequence[Token]) -> Callable[[Any], object]:
        """What appends a wait for these timelines each time it is called, without points or memory.

        It is called with the value of one semaphore (int), or with a list or tuple of those of several. Like any append
        it takes effect whole or not at all; what is no unsigned 64-bit int may be left for it to refuse, with a
        ValueError. Default: `append_wait`.
        """
        return lambda values: self.append_wait(semaphores, [WaitParams(value=each) for each in _listed(values)], (), (),
                                               False)

    def prepare_signal(self, semaphores: Sequence[Token]) -> Callable[[Any], object]:
        """The same for a signal. Default: `append_signal`."""
        return lambda values: self.append_signal(semaphores, [SignalParams(value=each) for each in _listed(values)], (),
                                                 (), False)

    def append_copy(
        self, dst: int, src: int, size: int, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Copy `size` bytes between addresses of `DeviceDriver.map_buffer` and `host_buffer`."""
        _unsupported(self, "append_copy")

    def append_level_copy(
        self, level: Token, address: int, read: bool, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Copy an image level to a host buffer at `address` (`read`), or from it; its rows have no padding."""
        _unsupported(self, "append_level_copy")

    def append_fill(
        self, dst: int, pattern: bytes, size: int, wait_points: Sequence[Token], want_point: bool
    ) -> Token | None:
        """Repeat `pattern` over `size` bytes; its length divides `size`."""
        _unsupported(self, "append_fill")

    # ---- Feature.RECORDING
    def begin_recording(self) -> None:
        """From here to `end_recording`, appends are recorded and not executed."""
        _unsupported(self, "begin_recording")

    def end_recording(self) -> Token:
        """The recording."""
        _unsupported(self, "end_recording")

    def replay(self, recording: Token, values: Sequence[tuple[Token, int, int]]) -> None:
        """Append a recording with new timeline values: (semaphore, value to wait for, value to signal)."""
        _unsupported(self, "replay")

    def release_recording(self, recording: Token) -> None:
        """Forget a recording; called once, when no replay of it is pending."""
        _unsupported(self, "release_recording")

    # ---- optional, with working defaults
    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` now, on the caller's thread: it only enqueues on this very queue. `host` queues it."""
        work()

    def capturing(self) -> bool:
        """Whether a foreign capture (CUDA graph) is active; called only if the application can capture the queue."""
        return False
