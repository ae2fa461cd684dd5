"""Devices: import semaphores and memory, and order work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from xsem.data.params import UINT64_MAX, check_bool, check_int
from xsem.data.streams import Stream, check_stream
from xsem.errors import BadArgumentError, BadHandleError, UnsupportedError, XsemError
from xsem.facade import memory as _memory
from xsem.facade import semaphore as _semaphore
from xsem.facade.buffer import HOST_DEVICE, Buffer, BufferRange, buffer_layout
from xsem.facade.command_list import CommandList
from xsem.facade.event import Event
from xsem.facade.memory import Memory
from xsem.facade.resource import Releasable
from xsem.facade.semaphore import Semaphore
from xsem.facade.sharing import SharedArray, share_array
from xsem.plugins import check_implements, check_queue_implements
from xsem.runtime.device_state import FIRST, DeviceState
from xsem.runtime.diagnostics.host_waits import unblock_released
from xsem.runtime.diagnostics.pending_operations import device_pending
from xsem.runtime.diagnostics.watchdog import watch
from xsem.runtime.forks import check_generation, generation
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.operations import Fence
from xsem.runtime.queues.queue_table import QueueTable
from xsem.spi import BorrowedEvents, BorrowedQueues, DeviceDriver, HostMemory, NvSciSync, QueueDriver, Token
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

_TIMELINES = (SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32,
              SemaphoreHandleType.HOST_TIMELINE_FD, SemaphoreHandleType.HOST_TIMELINE_WIN32)
_BINARIES = (SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.OPAQUE_WIN32)


class Device(Releasable):
    """One open device of one backend, made by `open_device`.

    `release`, or the end of a ``with`` block, releases the device and everything opened through it. The driver's device
    closes when all appended work is done and no array over its memory is alive. The collection of an unreleased device
    causes a ResourceWarning.

    Attributes
    ----------
    info : DeviceInfo
        Name, UUIDs and driver version.
    capabilities : Capabilities
        Declared capabilities. A call that needs another capability raises `UnsupportedError`.

    Raises
    ------
    ReleasedError
        ``released``: the device was released. Each method except `release` and `releasing` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     frames = device.create_timeline()
    ...     commands = device.create_command_list()
    ...     commands.append_signal(frames, 1)
    ...     frames.host_wait(1)
    ...     device.info.id
    'host:0'
    """

    _lifetime: Lifetime
    _open: ClassVar[Callable[..., Device]]   # `open_device`: the module of that function imports this one, and sets it

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        check_implements(info, driver)
        self.info = info
        self._device_state = DeviceState(info, driver)
        self._borrowing = driver if isinstance(driver, BorrowedQueues) else None
        self._queues = QueueTable(self._device_state)
        unblock_released(self._queues)
        self._lifetime = self._device_state.lifetime
        self.capabilities: Capabilities = self._device_state.capabilities

    # ---- semaphores and memory
    def import_semaphore(self, desc: SemaphoreDesc, *, label: str = "") -> Semaphore:
        """Import a semaphore (cuImportExternalSemaphore, zeDeviceImportExternalSemaphoreExt).

        Parameters
        ----------
        desc : SemaphoreDesc
            Description of the semaphore. The caller keeps the handle, on success and on failure: xsem neither consumes
            nor closes the handle. The driver gets a duplicate.
        label : str
            Name of the semaphore in errors and reports, which show its ``repr()``.

        Returns
        -------
        Semaphore
            The imported semaphore. It does not need the caller's fd or NT handle.

        Raises
        ------
        BadArgumentError
            ``not_a_descriptor``; ``bad_label``: the label is not a str; ``not_a_handle``: ``fileno()`` of the handle
            returns no int.
        UnsupportedError
            ``unsupported``: the device does not declare this type, for example a Win32 handle on Linux.
        WrongDeviceError
            ``wrong_device``, ``wrong_driver``: the descriptor names another device or driver as its exporter.
        BadHandleError
            ``closed_fd``; ``fd_is_pipe``, ``fd_is_socket``, ``fd_is_directory``, ``fd_is_empty_file`` and the like; or
            the driver refuses the handle. A GPU driver does not detect the kind of the object behind an fd. Without an
            error, a GPU driver imports the fd of a binary semaphore as a timeline. xsem itself checks portable
            timelines: ``not_a_memfd``, ``unsealed``, ``wrong_magic`` and the like.
        BusyError
            ``too_many_holders``: 128 processes hold the portable timeline (Linux). ``fd_limit``.
        ReleasedError
            ``handle_closed``: the descriptor's `OwnedHandle` is closed.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as renderer, xsem.open_device("host") as device:
        ...     frames = renderer.create_timeline()
        ...     with frames.export() as desc:               # in another process: xsem.ipc.receive
        ...         imported = device.import_semaphore(desc, label="frames")
        ...     frames.host_signal(1)
        ...     imported.host_wait(1)
        """
        self._check()
        return _semaphore.import_semaphore(self, self._device_state, desc, label)

    def import_memory(self, desc: MemoryDesc) -> Memory:
        """Import memory (cuImportExternalMemory).

        Parameters
        ----------
        desc : MemoryDesc
            Description of the memory. The caller keeps the handle, on success and on failure, as in `import_semaphore`.

        Returns
        -------
        Memory
            The imported memory. It does not need the caller's fd or NT handle.

        Raises
        ------
        BadHandleError
            ``allocation_size_beyond_file``: the file behind the fd, or on Level Zero the driver's allocation, is
            smaller than `MemoryDesc.allocation_size`. On other GPU drivers, xsem cannot check the size. Portable
            memory: ``short_page``, ``not_a_memfd``, ``unsealed`` and the like. Other reasons as in `import_semaphore`.
        BadArgumentError, UnsupportedError, WrongDeviceError, ReleasedError
            As in `import_semaphore`. ``several_allocations``: the descriptor has `MemoryDesc.chunks`, and the device
            does not declare `Feature.MEMORY_CHUNKS`. ``bad_size``: the size of a chunk is not that of its allocation.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as renderer, xsem.open_device("host") as device:
        ...     image = renderer.create_memory("OPAQUE_FD", 4096)
        ...     image.map_buffer().numpy()[0] = 7
        ...     with image.export() as desc:                # in another process: xsem.ipc.receive
        ...         imported = device.import_memory(desc)
        ...     imported.map_buffer().numpy()[0].item()
        7
        """
        self._check()
        return _memory.import_memory(self, self._device_state, desc)

    def create_semaphore(
        self, type: SemaphoreHandleType | str, *, initial_value: int = 0, label: str = ""
    ) -> Semaphore:
        """Create a semaphore for export.

        Parameters
        ----------
        type : SemaphoreHandleType or str
            One of `Capabilities.semaphore_export`, or its name, for example ``"OPAQUE_FD"``.
        initial_value : int
            First value of a timeline, 0 … 2**64 - 1. Other kinds take only 0.
        label : str
            Name of the semaphore in errors and reports, which show its ``repr()``.

        Returns
        -------
        Semaphore
            The new semaphore. `Semaphore.export` makes descriptors of it.

        Raises
        ------
        BadArgumentError
            ``bad_type``; ``value_out_of_range``, ``value_not_allowed``, ``not_an_int``; ``bad_label``: the label is not
            a str.
        UnsupportedError
            ``unsupported``: the device does not declare this type.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     device.create_semaphore("OPAQUE_FD").kind.value
        'binary'
        """
        self._check()
        return _semaphore.create_semaphore(self, self._device_state, type, initial_value, label)

    def create_timeline(self, initial_value: int = 0, *, label: str = "") -> Semaphore:
        """Create a timeline semaphore for export.

        The type is the first of TIMELINE_SEMAPHORE_FD, TIMELINE_SEMAPHORE_WIN32, HOST_TIMELINE_FD and
        HOST_TIMELINE_WIN32 that the device exports: on CUDA, a portable timeline. `create_semaphore` takes any type,
        and `xsem.negotiate` chooses one for an importer.

        Parameters
        ----------
        initial_value : int
            First value, 0 … 2**64 - 1.
        label : str
            As in `create_semaphore`.

        Returns
        -------
        Semaphore
            As from `create_semaphore`.

        Raises
        ------
        BadArgumentError
            ``value_out_of_range``, ``not_an_int``; ``bad_label``.
        UnsupportedError
            ``unsupported``: the device exports none of these types.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline(label="frames")
        ...     frames.host_signal(1)
        ...     frames.value()
        1
        """
        return self.create_semaphore(self._exported(_TIMELINES), initial_value=initial_value, label=label)

    def create_binary(self, *, label: str = "") -> Semaphore:
        """Create a binary semaphore for export.

        The type is OPAQUE_FD if the device exports this type, otherwise OPAQUE_WIN32.

        Parameters
        ----------
        label : str
            As in `create_semaphore`.

        Returns
        -------
        Semaphore
            As from `create_semaphore`, not signalled.

        Raises
        ------
        BadArgumentError
            ``bad_label``.
        UnsupportedError
            ``unsupported``: the device exports neither type.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     ready = device.create_binary()
        ...     ready.host_signal()
        ...     ready.host_wait()       # and resets it
        """
        return self.create_semaphore(self._exported(_BINARIES), label=label)

    def create_memory(self, type: MemoryHandleType | str, size: int, *, dedicated: bool = False) -> Memory:
        """Allocate memory for export.

        Parameters
        ----------
        type : MemoryHandleType or str
            One of `Capabilities.memory_export`, or its name, for example ``"OPAQUE_FD"``.
        size : int
            Smallest size in bytes. `Memory.allocation_size` is the size of the allocation.
        dedicated : bool
            Request a dedicated allocation. Each exported descriptor has the same flag (`MemoryDesc.dedicated`).

        Returns
        -------
        Memory
            The new memory. `Memory.export` makes descriptors of it.

        Raises
        ------
        BadArgumentError
            ``bad_type``, ``bad_size``, ``not_an_int``, ``not_a_bool``.
        UnsupportedError
            ``unsupported``: the device does not declare this type.
        OutOfMemoryError
            ``out_of_memory``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     memory = device.create_memory("OPAQUE_FD", 640 * 480 * 4)
        ...     memory.map_buffer(shape=(480, 640, 4)).shape
        (480, 640, 4)
        """
        self._check()
        return _memory.create_memory(self, self._device_state, type, size, dedicated)

    def share(
        self, array: Any, *, type: MemoryHandleType | str | None = None, size: int | None = None,
        read_only: bool = False,
    ) -> SharedArray:
        """Make an array of another library exportable, without a copy.

        Parameters
        ----------
        array : object or int
            An array of torch, CuPy, JAX or Numba on this device: any object with ``__cuda_array_interface__`` or
            DLPack. Or the address of device memory. xsem keeps a reference to the object until the shared memory is
            freed. An address must stay valid until then. The strides of the array are kept.
        type : MemoryHandleType or str, optional
            One of `Capabilities.memory_export`, or its name, for example ``"DMABUF_FD"``. Without it, xsem takes
            OPAQUE_FD, or DMABUF_FD if the device declares only that. On CUDA, OPAQUE_FD needs memory of cuMemCreate
            with an exportable handle type, for example a torch tensor in an expandable segment. DMABUF_FD takes memory
            of cuMemAlloc, too.
        size : int, optional
            Size in bytes, only with an address.
        read_only : bool
            True: the application promises that importers only read. Needed for an array that its library calls
            read-only, for example every array of JAX. No driver prevents an importer from writing.

        Returns
        -------
        SharedArray
            Exportable memory, with the offset, the shape, the dtype and the strides of the array. Its release neither
            frees nor changes the array. Importers see the whole allocation, also after the release and after the end
            of the array: the library can then use the memory for other arrays.

        Raises
        ------
        UnsupportedError
            ``unsupported``: the device does not declare `Feature.MEMORY_SHARING` or this type. ``not_shareable``: the
            device cannot export the memory; ``may_be_compressed``: importers could see other bytes (Level Zero on Xe2
            and newer); ``several_allocations``: the array spans several allocations, and the
            device does not export each of them. The message names the setting that makes the library allocate
            exportable memory.
        BadArgumentError
            ``bad_type``; ``not_an_array``; ``host_array``; ``managed_memory``; ``not_device_memory``: no memory is
            allocated at the address, for example because the array was freed; ``out_of_range``: the allocation ends
            earlier; ``array_refused``: the library refuses to describe the array; ``masked_array``; ``null_address``;
            ``read_only_array``: the array is read-only, and `read_only` is False; ``not_a_bool``; ``bad_shape``: the
            array is empty; ``bad_strides``: a stride is negative; ``bad_dtype``; ``bad_size``, ``not_an_int``.
        WrongDeviceError
            ``wrong_device``: the array is on another device.

        Examples
        --------
        `host` cannot share arrays. On CUDA, with a tensor of torch::

            tensor = torch.zeros(480, 640, 4, dtype=torch.uint8, device="cuda")
            with device.share(tensor) as shared, shared.export() as desc:
                xsem.ipc.send(sock, desc)
        """
        self._check()
        return share_array(self, self._device_state, array, type, size, read_only=read_only)

    def companion_exporter(self) -> Device:
        """Open the Vulkan device of the same GPU, which creates and exports semaphores.

        CUDA, Level Zero and OpenCL import semaphores, and export only portable timelines. This method is equal to
        ``open_device("vulkan", uuid=device.info.uuid)``, and checks this device's UUID.

        Returns
        -------
        Device
            A new device at each call. The caller releases it. It does not depend on this device.

        Raises
        ------
        UnsupportedError
            ``no_uuid``: this device has no UUID, so no other API can name it.
        BackendUnavailableError
            ``unknown_backend``, ``backend_excluded``, or the reason why the backend ``vulkan`` is not usable here.
        DeviceNotFoundError
            ``no_device``, ``no_such_device``: no Vulkan device has the UUID, for example because Vulkan does not show
            the GPU (VK_DRIVER_FILES, the container's graphics capability). ``ambiguous_device``: several have it.
            `candidates` lists the devices.
        BadArgumentError, BusyError
            ``bad_backends``, ``loading_plugins``: as in `backends`.

        Examples
        --------
        On a device with a UUID, for example CUDA::

            with xsem.open_device("cuda") as device, device.companion_exporter() as vulkan:
                with vulkan.create_timeline().export() as desc:
                    frames = device.import_semaphore(desc)
        """
        self._check()
        if self.info.uuid is None:
            raise UnsupportedError(f"{self.info.id} has no UUID, so its Vulkan device cannot be found",
                                   capability="companion_exporter", reason="no_uuid", backend=self.info.backend)
        return self._open("vulkan", uuid=self.info.uuid)

    def nvscisync_attributes(self, attributes: int, *, signal: bool = False, wait: bool = False) -> None:
        """Write the device's requirements into an NvSciSyncAttrList (cuDeviceGetNvSciSyncAttributes).

        The application reconciles this list with the list of the other side, and allocates the NvSciSync object from
        the result. The application then imports the object with `SemaphoreDesc.nvscisync`. xsem calls no NvSci
        function.

        Parameters
        ----------
        attributes : int
            The NvSciSyncAttrList (a pointer). A required permission must not be set yet. The caller keeps ownership, on
            success and on failure.
        signal, wait : bool
            Intended uses of the object on this device, at least one. The driver refuses an append for another use.

        Raises
        ------
        UnsupportedError
            ``unsupported``: the device does not declare NvSciSync semaphores. ``not_supported``, ``driver_too_old``:
            the driver does not support them.
        BadArgumentError
            ``not_an_int``; ``signal_or_wait``: neither `signal` nor `wait` is True, or one of them is not a bool.
        BadHandleError
            ``null_handle``; ``handle_out_of_range``; ``refused_by_driver``: the pointer is not an attribute list.
        DriverError
            ``invalid_value``: the list already has a permission.
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
        driver = device_state.ability(NvSciSync, "nvscisync_attributes")
        with device_state.calling(SemaphoreHandleType.NVSCISYNC):
            driver.nvscisync_attributes(attributes, signal, wait)

    def host_buffer(self, size: int) -> Buffer:
        """Allocate page-locked host memory, for the host side of `CommandList.append_copy`.

        Parameters
        ----------
        size : int
            Size in bytes.

        Returns
        -------
        Buffer
            A buffer of `size` elements of type uint8. The host reads and writes it with `Buffer.numpy`.

        Raises
        ------
        BadArgumentError
            ``bad_size``, ``not_an_int``.
        UnsupportedError
            The device has no host buffers.
        OutOfMemoryError
            ``out_of_memory``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     memory, staging = device.create_memory("OPAQUE_FD", 4096), device.host_buffer(4096)
        ...     staging.numpy()[:] = 7
        ...     commands = device.create_command_list()
        ...     commands.append_copy(memory.map_buffer(), staging)
        ...     commands.synchronize()
        """
        self._check()
        check_int("size", size, 1, UINT64_MAX, reason="bad_size")
        device_state = self._device_state
        driver = device_state.ability(HostMemory, "host_buffer")
        with device_state.making("host buffer", driver.release_host_buffer, token_of=FIRST) as making:
            token, address = making.call(driver.host_buffer, size)
            _, layout, element = buffer_layout(size, None, "uint8", None, offset=0, allocated=size)
            lifetime = making.lifetime()
            place = BufferRange(token, address, 0, lifetime, 0)
            return Buffer(self, lifetime, place, size, layout, element, dlpack_device=HOST_DEVICE)

    # ---- lists and events
    def create_command_list(self) -> CommandList:
        """Create an in-order command list that the device owns.

        Returns
        -------
        CommandList
            The new list. `Capabilities.independent_lists` is the number of lists that can be used at once.

        Raises
        ------
        BusyError
            ``too_many_lists``: the device supports no more open lists.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     done, commands = device.create_timeline(), device.create_command_list()
        ...     commands.append_signal(done, 1)
        ...     done.host_wait(1)
        """
        self._check()
        device_state = self._device_state
        with device_state.calling():
            driver = self._checked_queue(device_state.driver.create_queue())
            queue = self._queues.add(driver, self._queues.next_name())
        return CommandList(self, queue)

    def command_list(self, stream: Stream, *, in_order: bool = True) -> CommandList:
        """Borrow the application's own stream or queue as a command list.

        xsem never destroys the stream. The release of the list ends only this wrapper of the stream.

        Parameters
        ----------
        stream : object with ``__cuda_stream__``, ``int_ptr``, ``sycl_queue`` or ``addressof_ref``, or int
            A stream of torch, CuPy or cuda.core, a queue of pyopencl or dpctl, or a native handle. xsem keeps a
            reference to a stream object while it uses the stream. A stream given as an int must outlive this device. A
            0 from an object is the legacy default stream. The int 0 is refused.
        in_order : bool
            False: the queue can reorder its commands. If the device supports such queues (Level Zero), xsem adds
            barriers to each append. A stream that the device already knows keeps its first answer.

        Returns
        -------
        CommandList
            A list on the stream. All lists on one native stream share its order.

        Raises
        ------
        WrongDeviceError
            ``wrong_device``, ``wrong_context``: the stream belongs to another device or context.
        BadArgumentError
            ``null_stream``; ``out_of_order``; ``not_a_stream``; ``stream_protocol``; ``not_a_bool``.
        UnsupportedError
            The device cannot borrow streams. ``sycl_runtime``: the command list of a SYCL queue cannot be found.

        Examples
        --------
        `host` has no streams. On CUDA, with the stream of torch::

            commands = device.command_list(torch.cuda.current_stream())
            commands.append_wait(drawn, 1)
        """
        self._device_state.check()
        if in_order is not True:
            check_bool("in_order", in_order)
        queues, device_state, borrowing = self._queues, self._device_state, self._borrowing
        if borrowing is None:
            check_stream(stream)
            device_state.unsupported("borrow_queue")
        try:
            identity = borrowing.queue_identity(stream)
        except Exception as error:
            check_stream(stream)
            if isinstance(error, XsemError):
                device_state.annotate_error(error)
            raise
        found = None if identity is None else queues.use_borrowed(identity)
        if found is not None:
            known_queue, use = found
            return CommandList(self, known_queue, use)
        check_stream(stream)
        with device_state.calling():
            driver = self._checked_queue(borrowing.borrow_queue(stream, in_order))
            with queues.streams_lock:
                # One native queue has one `Queue`. The stream can also belong to a list of the device itself.
                queue = queues.borrowed(driver.identity)
                known = queue is not None
                if queue is None:
                    queue = queues.add(driver, queues.stream_name(driver), borrowed=True)
                commands = CommandList(self, queue, queue.stream_lists.use())
            if known:
                driver.close()
        queues.release_idle()
        return commands

    def _checked_queue(self, driver: QueueDriver) -> QueueDriver:
        """Return a new driver of a queue, or close and refuse it if it lacks a declared ability."""
        try:
            check_queue_implements(self.info, self.capabilities, driver)
        except BaseException:
            driver.close()
            raise
        return driver

    def create_event(self) -> Event:
        """Create an unbound event.

        Returns
        -------
        Event
            An event for the ``signal_event=`` of one append.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     event, commands = device.create_event(), device.create_command_list()
        ...     commands.append_barrier(signal_event=event)
        ...     event.wait()
        """
        self._check()
        return Event(self)

    def event(self, native: object) -> Event:
        """Borrow an event of another library as an event that is already appended.

        Parameters
        ----------
        native : object
            An event of torch, CuPy or pyopencl, or a native handle. `host` takes a `threading.Event` or a
            `concurrent.futures.Future`. The application keeps ownership, on success and on failure.

        Returns
        -------
        Event
            A bound event for ``wait_events=``. It cannot be a ``signal_event``.

        Raises
        ------
        UnsupportedError
            The device does not declare native events.
        BadArgumentError
            ``not_an_event``: the device does not accept the object. ``event_not_recorded``; ``null_event``;
            ``user_event``.
        WrongDeviceError
            ``wrong_device``, ``wrong_context``: the event belongs to another device or context.

        Examples
        --------
        >>> import threading
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     loaded, commands = threading.Event(), device.create_command_list()
        ...     commands.append_barrier(wait_events=[device.event(loaded)])     # on CUDA: an event of torch
        ...     loaded.set()
        ...     commands.synchronize()
        """
        self._check()
        device_state = self._device_state
        device_state.require(Feature.NATIVE_EVENTS)
        driver = device_state.ability(BorrowedEvents, Feature.NATIVE_EVENTS.value)
        with device_state.calling():
            token = driver.borrow_event(native)
        return Event(self, Fence(device_state, token, None, 0))

    # ---- diagnosis
    def pending(self) -> tuple[PendingOp, ...]:
        """Return the pending operations of all command lists of this device.

        Returns
        -------
        tuple of PendingOp
            Operations that are appended and not known to be done: list by list, oldest first.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, commands = device.create_timeline(), device.create_command_list()
        ...     commands.append_wait(drawn, 1)
        ...     [(each.operation, each.value) for each in device.pending()]
        ...     drawn.host_signal(1)
        [('wait', 1)]
        """
        self._check()
        return device_pending(self._queues)

    def releasing(self) -> tuple[str, ...]:
        """Return the names of the objects that are released and not yet freed.

        An object stays in this state while a pending operation, a mapping or an array uses the object. The state also
        includes the driver's call that frees the object. The method also works on a released device. The device itself
        is freed last.

        Returns
        -------
        tuple of str
            Empty when every release has taken effect.

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
        >>> del array                           # xsem can now free both
        """
        device_state = self._device_state
        check_generation(device_state.generation, self.info.id)
        device_state.releaser.drain()
        return device_state.releaser.releasing()

    def watch(
        self, *, after_s: float, report: Callable[[tuple[PendingOp, ...]], object] | None = None
    ) -> None:
        """Report operations that stay pending, also while another library blocks the host.

        A second call replaces the earlier watch. The watch ends when the device is released or collected.

        Parameters
        ----------
        after_s : float
            Seconds, greater than 0. The watch reports a list if its oldest pending operation stays pending longer, once
            for each such operation.
        report : callable, optional
            Function of the application. A thread of xsem calls the function with a tuple of `PendingOp`. An exception
            in the function is logged. Default: a warning to the logger ``"xsem"``.

        Raises
        ------
        BadArgumentError
            ``bad_timeout``, ``not_callable``.
        OutOfMemoryError
            ``out_of_memory``: the system refuses a thread. An earlier watch continues.

        Notes
        -----
        A separate thread queries the driver, and the watch waits about one second for the answer. A driver can block
        that thread while a wait is unmet. CUDA, for example, blocks it during a kernel's first launch behind the wait.
        The report then comes from xsem's own records: each ``current_value`` is None, and some of the operations may be
        done. A warning to the logger ``"xsem"`` says so.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     device.watch(after_s=5)     # warns about each wait that is not met within 5 s
        """
        self._check()
        watch(self._queues, after_s, report)

    def _exported(self, types: tuple[SemaphoreHandleType, ...]) -> SemaphoreHandleType:
        """Return the first of these types that the device exports. Without one, the creation refuses the first type."""
        return next((each for each in types if each in self.capabilities.semaphore_export), types[0])

    # ---- release
    def release(self) -> None:
        """Release the device and everything opened through it.

        The call returns at once. Appended work still completes, and then the driver's device closes. A second call has
        no effect, or completes a release that Ctrl-C interrupted.

        Examples
        --------
        >>> import xsem
        >>> device = xsem.open_device("host")
        >>> device.release()                # a `with` block does the same
        >>> device.released
        True
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
        if lifetime is None or lifetime.is_released() or generation() != self._device_state.generation:
            return
        device_state = self._device_state

        def release() -> None:
            # Not in the finalizer, because both calls take locks.
            device_state.stop_watching()
            device_state.releaser.release_all(device_state.lifetime)

        device_state.releaser.post(release)
        # The last statement: it raises where warnings are errors.
        warnings.warn(f"unreleased {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Device {self.info.id} {self.info.name!r}>"
