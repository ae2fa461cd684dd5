"""Devices: where semaphores and memory are imported, and work is ordered on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from xsem.data.params import UINT64_MAX, check_int
from xsem.data.streams import Stream, check_stream
from xsem.errors import BadArgumentError, BadHandleError
from xsem.facade import memory as _memory
from xsem.facade import semaphore as _semaphore
from xsem.facade.buffer import Buffer, buffer_layout
from xsem.facade.command_list import CommandList
from xsem.facade.event import Event
from xsem.facade.memory import Memory
from xsem.facade.resource import Resource
from xsem.facade.semaphore import Semaphore
from xsem.plugins import check_implements, check_list_implements
from xsem.runtime.device_state import DeviceState
from xsem.runtime.diagnostics.pending import device_pending
from xsem.runtime.diagnostics.watchdog import watch
from xsem.runtime.forks import check_generation, generation
from xsem.runtime.queues.operations import Fence
from xsem.runtime.queues.queue_table import QueueTable
from xsem.spi import DeviceDriver, Token
from xsem.types import (
    Capabilities,
    DeviceInfo,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    PendingOp,
    SemaphoreDesc,
    SemaphoreHandleType,
)

__all__ = ["Device"]


class Device(Resource):
    """One open device; made by `open_device`.

    Releasing it releases everything that was opened through it; the driver's device closes when all that was appended
    is done and no array over its memory is alive. One that is collected unreleased warns (ResourceWarning).

    Attributes
    ----------
    info : DeviceInfo
    capabilities : Capabilities
        What it promises; what is not declared raises `UnsupportedError`.
    """

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        check_implements(info, driver)
        self.info = info
        self._device_state = DeviceState(info, driver)
        self._queues = QueueTable(self._device_state)
        self._lifetime = self._device_state.lifetime
        self.capabilities: Capabilities = self._device_state.capabilities

    # ---- semaphores and memory
    def import_semaphore(self, desc: SemaphoreDesc, *, label: str = "") -> Semaphore:
        """Import a semaphore (cuImportExternalSemaphore, zeDeviceImportExternalSemaphoreExt).

        Parameters
        ----------
        desc : SemaphoreDesc
            Borrowed: the caller's handle is neither consumed nor closed, on success or failure. The driver gets a
            duplicate of its own.
        label : str
            Names the semaphore in errors and reports, which show its ``repr()``.

        Raises
        ------
        BadArgumentError
            ``not_a_descriptor``; ``bad_label``: it is not a str.
        UnsupportedError
            ``unsupported``: the device does not declare this type (a Win32 handle on Linux, say).
        WrongDeviceError
            ``wrong_device``, ``wrong_driver``: the descriptor was stamped by another.
        BadHandleError
            ``closed_fd``; ``fd_is_pipe``, ``fd_is_socket``, ``fd_is_directory``, ``fd_is_empty_file`` and the like; or
            the driver's refusal. What kind of object an fd is cannot be seen on a GPU driver, so a binary semaphore's
            fd described as a timeline is taken without complaint there.
        ReleasedError
            ``handle_closed``: the descriptor's `OwnedHandle` is closed.
        """
        self._check()
        return _semaphore.import_semaphore(self, self._device_state, desc, label)

    def import_memory(self, desc: MemoryDesc) -> Memory:
        """Import memory (cuImportExternalMemory).

        Ownership and errors are as for `import_semaphore`; besides, BadHandleError with reason
        ``allocation_size_beyond_file`` where the fd is a file that is shorter than the descriptor says. On a GPU driver
        the size cannot be checked.
        """
        self._check()
        return _memory.import_memory(self, self._device_state, desc)

    def create_semaphore(
        self, type: SemaphoreHandleType, *, initial_value: int = 0, label: str = ""
    ) -> Semaphore:
        """Create a semaphore for export.

        Parameters
        ----------
        type : SemaphoreHandleType
            One of `Capabilities.semaphore_export`.
        initial_value : int
            Timelines only: 0 … 2**64 - 1.
        label : str
            Names the semaphore in errors and reports, which show its ``repr()``.

        Raises
        ------
        BadArgumentError
            ``bad_type``; ``value_out_of_range``, ``value_not_allowed``; ``bad_label``: it is not a str.
        UnsupportedError
            ``unsupported``: the device does not declare this type.
        """
        self._check()
        return _semaphore.create_semaphore(self, self._device_state, type, initial_value, label)

    def create_memory(self, type: MemoryHandleType, size: int, *, dedicated: bool = False) -> Memory:
        """Allocate memory for export: at least `size` bytes; `Memory.allocation_size` says how many it became."""
        self._check()
        return _memory.create_memory(self, self._device_state, type, size, dedicated)

    def nvscisync_attributes(self, attributes: int, *, signal: bool = False, wait: bool = False) -> None:
        """Write into an NvSciSyncAttrList what this device needs (cuDeviceGetNvSciSyncAttributes).

        The application reconciles it with the other side's list and allocates the NvSciSync object from that, to be
        imported as `SemaphoreDesc.nvscisync`. xsem calls nothing of NvSci.

        Parameters
        ----------
        attributes : int
            The NvSciSyncAttrList (a pointer), without a required permission yet; it stays the caller's.
        signal, wait : bool
            What the device is to do with the object; at least one. A use that is not asked for here is refused by the
            driver later, when it is appended.

        Raises
        ------
        UnsupportedError
            ``unsupported``: the device does not declare NvSciSync semaphores. ``not_supported``, ``driver_too_old``:
            the driver cannot.
        BadArgumentError
            ``not_an_int``; ``signal_or_wait``: neither was asked for, or it is no bool.
        BadHandleError
            ``null_handle``; ``handle_out_of_range``; ``refused_by_driver``: it is no attribute list.
        DriverError
            ``invalid_value``: a permission is set in it already.
        """
        self._check()
        if type(attributes) is not int:
            raise BadArgumentError(f"an NvSciSyncAttrList is given as an int, not {type(attributes).__name__}",
                                   reason="not_an_int", handle_type=SemaphoreHandleType.NVSCISYNC)
        if attributes == 0:
            raise BadHandleError("the NvSciSyncAttrList is null", reason="null_handle",
                                 handle_type=SemaphoreHandleType.NVSCISYNC)
        if not 0 < attributes <= UINT64_MAX:
            raise BadHandleError(f"{attributes:#x} is not a pointer", reason="handle_out_of_range",
                                 handle_type=SemaphoreHandleType.NVSCISYNC)
        if type(signal) is not bool or type(wait) is not bool or not (signal or wait):
            raise BadArgumentError("signal=True, wait=True or both say what the device is to do with the object",
                                   reason="signal_or_wait", handle_type=SemaphoreHandleType.NVSCISYNC)
        device_state = self._device_state
        if SemaphoreHandleType.NVSCISYNC not in device_state.capabilities.semaphore_import:
            device_state.unsupported(f"semaphore.import.{SemaphoreHandleType.NVSCISYNC.value}")
        with device_state.calling(SemaphoreHandleType.NVSCISYNC):
            device_state.driver.nvscisync_attributes(attributes, signal, wait)

    def host_buffer(self, size: int) -> Buffer:
        """Page-locked host memory of `size` bytes: what `CommandList.append_copy` takes on the host side."""
        self._check()
        check_int("size", size, 1, UINT64_MAX, reason="bad_size")
        device_state = self._device_state
        with device_state.calling(), device_state.making(
                "host buffer", lambda driver, made: driver.release_host_buffer(made[0])) as making:
            token, address = making.call(device_state.driver.host_buffer, size)
            _, layout, element = buffer_layout(size, size, None, "uint8", None)
            return Buffer(self, making.lifetime(), token, address, size, layout, element, host=True)

    # ---- lists and events
    def create_command_list(self) -> CommandList:
        """A new in-order list of the device's own."""
        self._check()
        device_state = self._device_state
        with device_state.calling():
            driver = device_state.driver.create_command_list()
            check_list_implements(self.info, device_state.capabilities, driver)
            queue = self._queues.add(driver, self._queues.next_name())
        return CommandList(self, queue)

    def command_list(self, stream: Stream, *, in_order: bool = True) -> CommandList:
        """The application's own stream or queue as a command list; it is borrowed, never destroyed.

        Parameters
        ----------
        stream : object with ``__cuda_stream__`` or ``int_ptr``, or int
            torch, CuPy, cuda.core, pyopencl, or a native handle. An object is kept alive while it is used; what an int
            stands for must outlive this device. An object's 0 is the legacy default stream; the int 0 is refused.
        in_order : bool
            False: the queue may reorder, so appends are fenced by barriers where the device can (Level Zero).

        Raises
        ------
        WrongDeviceError
            It belongs to another device or context.
        BadArgumentError
            ``null_stream``; ``out_of_order``; ``not_a_stream``.
        """
        self._check()
        check_stream(stream)
        device_state = self._device_state
        with device_state.calling():
            try:
                driver = device_state.driver.open_command_list(stream, in_order)
            except TypeError as error:
                raise BadArgumentError(f"{self.info.id} does not take a {type(stream).__name__} as a stream: {error}",
                                       reason="not_a_stream", backend=self.info.backend) from error
            check_list_implements(self.info, device_state.capabilities, driver)
            with self._queues.streams_lock:
                # Also a list of the device's own, borrowed by its native handle: one native queue has one `Queue`.
                queue = self._queues.get(driver.key)
                known = queue is not None and not queue.lifetime.released
                if queue is None or not known:
                    queue = self._queues.add(driver, f"{self.info.id}/stream-{driver.key:#x}", borrowed=True)
                commands = CommandList(self, queue, borrowed=True)
                queue.wrappers.add(commands)
            if known:
                driver.close()
        self._queues.release_idle()
        return commands

    def create_event(self) -> Event:
        """An event to be bound by ``signal_event=``."""
        self._check()
        return Event(self)

    def event(self, native: object) -> Event:
        """Borrow a framework's event (torch, CuPy, pyopencl, a native handle), taken as appended already.

        Raises
        ------
        UnsupportedError
            The device does not declare native events.
        BadArgumentError
            ``not_an_event``.
        """
        self._check()
        device_state = self._device_state
        device_state.require(Feature.NATIVE_EVENTS)
        try:
            with device_state.calling():
                token = device_state.driver.open_event(native)
        except TypeError as error:
            raise BadArgumentError(f"{self.info.id} does not take a {type(native).__name__} as an event: {error}",
                                   reason="not_an_event", backend=self.info.backend) from error
        return Event(self, Fence(device_state, token, None, 0))

    # ---- diagnosis
    def pending(self) -> tuple[PendingOp, ...]:
        """Everything appended to lists of this device that is not known to be done, list by list, oldest first."""
        self._check()
        return device_pending(self._queues)

    def releasing(self) -> tuple[str, ...]:
        """Names of what has been released and not freed yet; empty when every release has taken effect.

        Something uses it still (a pending operation, a mapping, an array over one), or the driver's call that frees it
        has not returned. Also of a device that is released itself: it is the last to go.

        Raises
        ------
        ForkedError
            ``forked``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     mem = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
        ...     buffer = mem.map_buffer()
        ...     array = buffer.numpy()
        ...     buffer.release()
        ...     mem.release()
        ...     device.releasing()
        ('buffer', 'opaque_fd memory')
        >>> del array                           # all of it can go now, soon
        """
        device_state = self._device_state
        check_generation(device_state.generation, self.info.id)
        device_state.releaser.drain()
        return device_state.releaser.releasing()

    def watch(
        self, *, after_s: float, report: Callable[[tuple[PendingOp, ...]], object] | None = None
    ) -> None:
        """Report operations pending for longer than `after_s` seconds, also while the host sits in another call.

        Parameters
        ----------
        after_s : float
            Seconds; a list is reported once for each operation that it is stuck at.
        report : callable, optional
            Called with the operations, on a thread of xsem's; default: a warning to the logger ``"xsem"``. An exception
            in it is logged.

        Raises
        ------
        OutOfMemoryError
            ``out_of_memory``: the system gives no thread. An earlier watch goes on.

        Notes
        -----
        Another thread asks the driver; the watch waits about one second for the answer. A driver can block that thread
        as long as a wait is unmet, as CUDA does in a kernel's first launch behind the wait. The report then comes from
        xsem's own records: each ``current_value`` is None, and some of the operations may be done. A warning to the
        logger ``"xsem"`` says so.

        Calling it again replaces the earlier watch. It ends when the device is released or collected.
        """
        self._check()
        watch(self._queues, after_s, report)

    # ---- release
    def release(self) -> None:
        """Release the device and everything opened through it; returns at once.

        A second call has no effect, or completes a release that Ctrl-C interrupted.
        """
        device_state = self._device_state
        if generation() != device_state.generation or self._lifetime.over:
            return
        device_state.stop_watching()
        device_state.releaser.release_all(self._lifetime)

    def _token(self) -> Token | None:
        return None

    def __del__(self) -> None:
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is None or lifetime.released or generation() != self._device_state.generation:
            return
        device_state = self._device_state

        def release() -> None:
            # Not in the finalizer: both take locks.
            device_state.stop_watching()
            device_state.releaser.release_all(device_state.lifetime)

        device_state.releaser.post(release)
        # Last: it raises where warnings are errors.
        warnings.warn(f"unreleased {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Device {self.info.id} {self.info.name!r}>"
