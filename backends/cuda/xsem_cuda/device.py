"""The driver of one open CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from xsem.errors import BadHandleError, DriverError, UnsupportedError, XsemError
from xsem.portable import SharedMemory, Timeline
from xsem.spi import (
    BorrowedEvents,
    BorrowedQueues,
    ChunkImport,
    DeviceDriver,
    HandleState,
    HostMemory,
    HostMemoryImport,
    HostTimelines,
    Images,
    Imported,
    ImportFailure,
    MemorySharing,
    NvSciSync,
    SemaphoreImport,
    Token,
)
from xsem.types import (
    Capabilities,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
)
from xsem_cuda.allocations import Allocation, Part, create_allocation
from xsem_cuda.causes import causes_of_type
from xsem_cuda.chunks import Chunks, import_chunks
from xsem_cuda.codes import UNKNOWN
from xsem_cuda.context import Context
from xsem_cuda.default_streams import DefaultStreamQueue, PerThreadQueue
from xsem_cuda.event_times import EventTimes
from xsem_cuda.fences import BorrowedFence, Fence, Fences, native_event
from xsem_cuda.images import ArrayToken, LevelToken, level_of, map_array
from xsem_cuda.memory import MemoryToken, buffer_descriptor, memory_descriptor
from xsem_cuda.queue import StreamQueue
from xsem_cuda.results import call
from xsem_cuda.semaphores import SemaphoreToken, semaphore_descriptor
from xsem_cuda.sharing import share_allocation
from xsem_cuda.streams import (
    DEFAULTS,
    LEGACY,
    PER_THREAD,
    check_ordinal,
    check_stream_device,
    parse_stream,
    per_thread_identity,
)
from xsem_cuda.tokens import DriverObject, HostObject
from xsem_cuda.words import Word, register

__all__ = ["CudaDevice"]


class CudaDevice(
    DeviceDriver, SemaphoreImport, HostTimelines, ChunkImport, MemorySharing, HostMemoryImport, HostMemory, Images,
    BorrowedQueues, BorrowedEvents, NvSciSync,
):
    """A device in one context. No call invalidates a capture of another thread (see `xsem_cuda.context`)."""

    signals_wake = False   # a stream writes the word and nothing else (measured)

    def __init__(
        self, driver: Any, device: Any, ordinal: int, context: Any, capabilities: Capabilities,
        close_context: Callable[[], None], timeout_causes: Sequence[str] = (),
        undeclared_causes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._driver = driver
        self._device = device
        self._ordinal = ordinal
        self._context = Context(driver, context)
        self._capabilities = capabilities
        self._close_context = close_context   # releases a primary context, and does nothing for a borrowed one
        self._quiet = self._context.quiet
        self._fences = Fences(driver, self._context)
        self._times = EventTimes(driver, self._context)
        self.timeout_causes = timeout_causes
        self.undeclared_causes = undeclared_causes or {}

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities, from the platform and the device's attributes."""
        return self._capabilities

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLCUDA (2) and the device's ordinal."""
        return (2, self._ordinal)

    def native_handle(self, token: Token | None) -> int:
        """Return the native handle as a number: without a token the CUcontext. The object still owns it."""
        if token is None:
            return self._context.address
        if isinstance(token, DriverObject | Allocation):
            return token.address
        return super().native_handle(token)

    def close(self) -> None:
        """Destroy the events and release the primary context."""
        with self._quiet:
            self._times.close()
            self._fences.close()
            self._close_context()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Call cuImportExternalSemaphore."""
        native, state = self._import(self._driver.cuImportExternalSemaphore, semaphore_descriptor, desc, handle)
        return Imported(SemaphoreToken(native, desc.type.kind), handle=state)

    def import_host_timeline(self, page: Timeline) -> Word:
        """Call cuMemHostRegister."""
        with self._context, self._quiet:
            return Word(self._driver, page)

    def release_semaphore(self, semaphore: SemaphoreToken) -> None:
        """Call cuDestroyExternalSemaphore or cuMemHostUnregister. Both block behind any unmet wait (measured)."""
        if isinstance(semaphore, Word):
            with self._context, self._quiet:
                call(self._driver.cuMemHostUnregister, semaphore.page)
            return
        with self._quiet:
            call(self._driver.cuDestroyExternalSemaphore, semaphore.native)

    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Call cuDeviceGetNvSciSyncAttributes."""
        driver = self._driver
        flags = int(driver.CUDA_NVSCISYNC_ATTR_SIGNAL) * signal | int(driver.CUDA_NVSCISYNC_ATTR_WAIT) * wait
        with self._quiet:
            call(driver.cuDeviceGetNvSciSyncAttributes, attributes, self._device, flags)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Call cuImportExternalMemory."""
        native, state = self._import(self._driver.cuImportExternalMemory, memory_descriptor, desc, handle)
        return Imported(MemoryToken(native, desc.allocation_size), handle=state)

    def import_chunks(self, desc: MemoryDesc, handles: Sequence[OwnedHandle]) -> Imported:
        """Call cuMemImportFromShareableHandle for each chunk, and map all to one range."""
        try:
            with self._context, self._quiet:
                memory = import_chunks(self._driver, self._ordinal, desc, handles)
        except XsemError as error:
            raise ImportFailure(self._blame(error), handle="left") from error
        return Imported(memory, handle="left")

    def import_host_memory(self, memory: SharedMemory) -> Allocation:
        """Map the memory and call cuMemHostRegister. Copies and kernels use it in place, over the bus."""
        with ExitStack() as undo:
            place = memory.map(0).address
            undo.callback(memory.unmap)
            with self._context, self._quiet:
                address = register(self._driver, place, memory.size)
            undo.callback(call, self._driver.cuMemHostUnregister, place)
            kept = undo.pop_all()
        return Allocation(self._driver, MemoryHandleType.HOST_MEMORY_FD, None, address, memory.size, kept)

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Allocation, int]:
        """Create, map and enable memory of cuMemCreate. Its size is a multiple of the granularity."""
        # `dedicated` is ignored: an allocation of cuMemCreate has no resource, and importers take it with and without
        # the flag (measured).
        with self._context, self._quiet:
            memory = create_allocation(self._driver, self._ordinal, type, size)
        return memory, memory.size

    def share_memory(
        self, type: MemoryHandleType, address: int, size: int, owner: object
    ) -> tuple[Allocation, int, int]:
        """Call cuMemRetainAllocationHandle, or check that the pages of the range make a dma-buf."""
        dmabufs = MemoryHandleType.DMABUF_FD in self._capabilities.memory_export
        with self._context, self._quiet:
            memory, offset = share_allocation(
                self._driver, self._ordinal, type, address, size, owner, dmabufs=dmabufs)
        return memory, memory.size, offset

    def export_memory(self, memory: Allocation) -> OwnedHandle:
        """Call cuMemExportToShareableHandle, or cuMemGetHandleForAddressRange for a dma-buf. The fd is the caller's."""
        with self._context, self._quiet:
            return memory.export()

    def export_chunks(self, memory: Allocation) -> Sequence[MemoryChunk]:
        """Call cuMemExportToShareableHandle for each allocation of several. The fds are the caller's."""
        if not isinstance(memory, Chunks):
            return ()
        with self._context, self._quiet:
            return memory.export_chunks()

    def map_buffer(self, memory: DriverObject | Allocation, offset: int, size: int) -> tuple[DriverObject, int]:
        """Call cuExternalMemoryGetMappedBuffer; return the mapping and its device address."""
        if isinstance(memory, Allocation):   # mapped already: its buffers are parts of this mapping
            part = memory.part(offset)
            return part, part.address
        native = buffer_descriptor(self._driver, offset, size)
        with self._context, self._quiet:
            buffer = DriverObject(call(self._driver.cuExternalMemoryGetMappedBuffer, memory.native, native))
        return buffer, buffer.address

    def unmap_buffer(self, buffer: DriverObject) -> None:
        """Call cuMemFree. It blocks behind an unmet wait on any stream (measured)."""
        if isinstance(buffer, Part):
            return
        with self._quiet:
            call(self._driver.cuMemFree, buffer.native)

    def release_memory(self, memory: DriverObject | Allocation) -> None:
        """Call cuDestroyExternalMemory. For an `Allocation`: cuMemUnmap, cuMemAddressFree and cuMemRelease.

        For memory of the host: cuMemHostUnregister, which blocks behind any unmet wait (measured).
        """
        with self._context, self._quiet:
            if isinstance(memory, Allocation):
                memory.close()
                return
            call(self._driver.cuDestroyExternalMemory, memory.native)

    def host_buffer(self, size: int) -> tuple[DriverObject, int]:
        """Call cuMemHostAlloc for page-locked memory that every context can use."""
        driver = self._driver
        with self._context, self._quiet:
            buffer = HostObject(call(driver.cuMemHostAlloc, size, int(driver.CU_MEMHOSTALLOC_PORTABLE)))
        return buffer, buffer.address

    def release_host_buffer(self, buffer: DriverObject) -> None:
        """Call cuMemFreeHost. It blocks behind any unmet wait (measured)."""
        with self._quiet:
            call(self._driver.cuMemFreeHost, buffer.native)

    # ---- images
    def map_mipmapped_array(self, memory: MemoryToken | Allocation, desc: MipmapDesc) -> ArrayToken:
        """Call cuExternalMemoryGetMappedMipmappedArray."""
        if isinstance(memory, Allocation):
            raise UnsupportedError(
                "CUDA maps images only onto imported memory of one allocation: create the memory where the image is "
                "made, for example on the device's companion_exporter()", capability="mipmapped_array",
                reason="created_memory")
        return map_array(self._driver, self._context, memory, desc)

    def mipmap_level(self, array: ArrayToken, level: int) -> LevelToken:
        """Call cuMipmappedArrayGetLevel."""
        return level_of(self._driver, self._context, array, level)

    def release_array(self, array: ArrayToken) -> None:
        """Call cuMipmappedArrayDestroy."""
        with self._context, self._quiet:
            call(self._driver.cuMipmappedArrayDestroy, array.native)

    # ---- queues and fences
    def create_queue(self) -> StreamQueue:
        """Create a non-blocking stream. A pending wait on a blocking stream would block the legacy stream."""
        driver = self._driver
        with self._context, self._quiet:
            stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        return StreamQueue(driver, self._context, self._fences, int(stream))

    def borrow_queue(self, stream: object, in_order: bool) -> StreamQueue:
        """Borrow a stream, always in order. The application keeps it, and the queue a reference to its object."""
        handle = parse_stream(stream)
        check_ordinal(self._ordinal, stream)
        with self._quiet:
            check_stream_device(self._driver, self._context, self._ordinal, handle)
        if handle == PER_THREAD:
            return PerThreadQueue(self._driver, self._context, self._fences, lent=stream)
        kind = DefaultStreamQueue if handle == LEGACY else StreamQueue
        return kind(self._driver, self._context, self._fences, handle, lent=stream)

    def queue_identity(self, stream: object) -> Hashable:
        """Return the identity of a queue on this stream."""
        # A queue keeps the stream object alive, so the handle of the object means one stream while the queue exists.
        # The default streams have the same handles on every device.
        handle = parse_stream(stream)
        if handle in DEFAULTS:
            check_ordinal(self._ordinal, stream)
            return per_thread_identity() if handle == PER_THREAD else handle
        return handle

    def borrow_event(self, native: object) -> BorrowedFence:
        """Borrow an event of torch, CuPy, Numba or cuda.core, or a CUevent. The fence keeps its object."""
        return BorrowedFence(native_event(self._driver, native), native)

    def query_fence(self, fence: Fence) -> bool:
        """Call cuEventQuery; return whether the fence is reached."""
        return self._fences.done(fence)

    def time_fences(self, on: bool) -> bool:
        """Create events with or without times."""
        self._fences.timed = on
        return True

    def fence_time(self, fence: Fence) -> float | None:
        """Call cuEventElapsedTime."""
        return self._times.of(fence.event) if self._fences.has_time(fence) else None

    def release_fence(self, fence: Fence) -> None:
        """Recycle the event of the fence. A borrowed event stays the application's."""
        self._fences.release(fence)

    # ---- inside
    def _import(
        self, function: Callable[..., Any], describe: Callable[..., tuple[Any, object]], desc: Any,
        handle: OwnedHandle | None,
    ) -> tuple[Any, HandleState]:
        """Return the imported driver object and the state of the handle."""
        native, keep = describe(self._driver, desc, handle)
        try:
            with self._context, self._quiet:
                imported = call(function, native)
        except XsemError as error:
            # A failed semaphore import leaves the fd open (measured for 999). Codes that the bindings do not
            # know were not measured. A failed memory import with 999 closes the fd of a pipe and of /dev/null, and
            # leaves it open for size 0 (measured), so the facade asks the kernel.
            unknown = isinstance(desc, MemoryDesc) or (error.code is not None and error.code_name is None)
            raised = self._blame(error)
            if isinstance(raised, BadHandleError | UnsupportedError) and raised.code is not None:
                raised.likely_causes = causes_of_type(desc.type, raised.code)
            raise ImportFailure(raised, handle="unknown" if unknown else "left") from error
        del keep
        # After success, the driver owns an fd, and the caller owns an NT handle.
        return imported, "taken" if desc.type.os_handle_kind is OsHandleKind.FD else "left"

    def _blame(self, error: XsemError) -> XsemError:
        """Map CUDA_ERROR_UNKNOWN of an import to a bad handle (measured), unless every call in the context fails so."""
        if not isinstance(error, DriverError) or error.code != UNKNOWN:
            return error
        try:
            with self._context, self._quiet:
                call(self._driver.cuMemGetInfo)
        except XsemError as other:
            if other.code == UNKNOWN:
                return error
        return BadHandleError(
            "the driver does not take the handle: pass the exported handle, with the descriptor of its type",
            reason="refused_by_driver", call=error.call, code=error.code, code_name=error.code_name,
            likely_causes=error.likely_causes,
        )
