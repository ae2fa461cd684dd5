"""The driver of one open CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from xsem.errors import BadHandleError, DriverError, UnsupportedError, XsemError
from xsem.spi import DeviceDriver, ImportFailure, Token
from xsem.types import (
    Capabilities,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)
from xsem_cuda.context import Context, Quiet
from xsem_cuda.fences import Fence, Fences, native_event
from xsem_cuda.handles import Owned
from xsem_cuda.images import ArrayToken, LevelToken, level_of, mipmap_descriptor
from xsem_cuda.memory import buffer_descriptor, memory_descriptor
from xsem_cuda.queue import PerThreadList, StreamList
from xsem_cuda.results import UNKNOWN, call
from xsem_cuda.semaphores import SemaphoreToken, semaphore_descriptor
from xsem_cuda.streams import PER_THREAD, check_ordinal, check_stream_device, identity_of, parse_stream

__all__ = ["CudaDevice"]


class CudaDevice(DeviceDriver):
    """A device in one context.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    device : CUdevice
    ordinal : int
        The device's index in CUDA.
    context : CUcontext
    capabilities : Capabilities
    close_context : callable
        Called once, at the end of `close`. It releases a primary context, and does nothing for a borrowed one.
    timeout_causes : sequence of str
        See `DeviceDriver`.
    """

    def __init__(
        self, driver: Any, device: Any, ordinal: int, context: Any, capabilities: Capabilities,
        close_context: Callable[[], None], timeout_causes: Sequence[str] = (),
    ) -> None:
        self._driver = driver
        self._device = device
        self._ordinal = ordinal
        self._context = Context(driver, context)
        self._capabilities = capabilities
        self._close_context = close_context
        self._quiet = Quiet(driver, self._context)
        self._fences = Fences(driver, self._context)
        self.timeout_causes = timeout_causes

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities, from the platform and the device's attributes."""
        return self._capabilities

    def quiet(self) -> AbstractContextManager[None]:
        """Return the relaxed stream-capture mode of the calling thread, for ``with``."""
        return self._quiet

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLCUDA (2) and the device's ordinal."""
        return (2, self._ordinal)

    def native_handle(self, token: Token | None) -> int:
        """Return the native handle as a number. The object still owns it.

        Parameters
        ----------
        token : object or None
            None: the CUcontext. A token: its CUexternalSemaphore, CUexternalMemory, CUdeviceptr, CUmipmappedArray or
            CUarray.

        Raises
        ------
        UnsupportedError
            The token has no native handle.
        """
        if token is None:
            return self._context.address
        if isinstance(token, Owned | LevelToken):
            return token.address
        return super().native_handle(token)

    def close(self) -> None:
        """Destroy the events and release the primary context."""
        self._fences.close()
        self._close_context()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> SemaphoreToken:
        """Call cuImportExternalSemaphore.

        Parameters
        ----------
        desc : SemaphoreDesc
        handle : OwnedHandle or None
            On success the driver owns an fd; an NT handle stays the caller's. On failure the caller still owns it.

        Raises
        ------
        UnsupportedError
            The device does not declare ``desc.type``. The driver is not called.
        ImportFailure
            With the error. Its fate is ``left`` if the handle is still open (measured for
            CUDA_ERROR_UNKNOWN), ``unknown`` for a code that the bindings do not know.
        """
        if desc.type not in self._capabilities.semaphore_import:
            self._refuse(desc.type, "semaphore")
        driver = self._driver
        native = self._import(driver.cuImportExternalSemaphore, semaphore_descriptor, desc, handle)
        return SemaphoreToken(native, desc.type.kind)

    def release_semaphore(self, semaphore: SemaphoreToken) -> None:
        """Call cuDestroyExternalSemaphore. It blocks behind any unmet wait, also for an idle semaphore (measured)."""
        self._give_up(semaphore, self._driver.cuDestroyExternalSemaphore)

    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Call cuDeviceGetNvSciSyncAttributes.

        Parameters
        ----------
        attributes : int
            Address of the application's NvSciSyncAttrList. The driver fills it.
        signal, wait : bool
            The uses of the NvSciSync object.
        """
        if SemaphoreHandleType.NVSCISYNC not in self._capabilities.semaphore_import:
            self._refuse(SemaphoreHandleType.NVSCISYNC, "semaphore")
        driver = self._driver
        flags = int(driver.CUDA_NVSCISYNC_ATTR_SIGNAL) * signal | int(driver.CUDA_NVSCISYNC_ATTR_WAIT) * wait
        call(driver.cuDeviceGetNvSciSyncAttributes, attributes, self._device, flags)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Owned:
        """Call cuImportExternalMemory.

        Parameters
        ----------
        desc : MemoryDesc
        handle : OwnedHandle or None
            On success the driver owns an fd; an NT handle stays the caller's.

        Raises
        ------
        UnsupportedError
            The device does not declare ``desc.type``. The driver is not called.
        ImportFailure
            With the error. Its fate is ``unknown``: a failed import closes some fds and leaves others open (measured).
        """
        if desc.type not in self._capabilities.memory_import:
            self._refuse(desc.type, "memory")
        return Owned(self._import(self._driver.cuImportExternalMemory, memory_descriptor, desc, handle))

    def map_buffer(self, memory: Owned, offset: int, size: int) -> tuple[Owned, int]:
        """Call cuExternalMemoryGetMappedBuffer; return the mapping and its device address."""
        native = buffer_descriptor(self._driver, offset, size)
        with self._context:
            buffer = Owned(call(self._driver.cuExternalMemoryGetMappedBuffer, memory.native, native))
        return buffer, buffer.address

    def unmap_buffer(self, buffer: Owned) -> None:
        """Call cuMemFree. It blocks behind an unmet wait on any stream (measured)."""
        self._give_up(buffer, self._driver.cuMemFree)

    def release_memory(self, memory: Owned) -> None:
        """Call cuDestroyExternalMemory."""
        self._give_up(memory, self._driver.cuDestroyExternalMemory)

    def host_buffer(self, size: int) -> tuple[Owned, int]:
        """Call cuMemHostAlloc for page-locked memory that every context can use."""
        driver = self._driver
        with self._context:
            buffer = Owned(call(driver.cuMemHostAlloc, size, int(driver.CU_MEMHOSTALLOC_PORTABLE)))
        return buffer, buffer.address

    def release_host_buffer(self, buffer: Owned) -> None:
        """Call cuMemFreeHost. It blocks behind any unmet wait (measured)."""
        self._give_up(buffer, self._driver.cuMemFreeHost)

    # ---- images
    def map_mipmapped_array(self, memory: Owned, desc: MipmapDesc) -> ArrayToken:
        """Call cuExternalMemoryGetMappedMipmappedArray."""
        native = mipmap_descriptor(self._driver, desc)
        with self._context:
            array = call(self._driver.cuExternalMemoryGetMappedMipmappedArray, memory.native, native)
        return ArrayToken(array, desc)

    def mipmap_level(self, array: ArrayToken, level: int) -> LevelToken:
        """Call cuMipmappedArrayGetLevel."""
        return level_of(self._driver, self._context, array, level)

    def release_array(self, array: ArrayToken) -> None:
        """Call cuMipmappedArrayDestroy."""
        self._give_up(array, self._driver.cuMipmappedArrayDestroy)

    # ---- command lists and fences
    def create_queue(self) -> StreamList:
        """Create a non-blocking stream. A pending wait on a blocking stream would block the legacy stream."""
        driver = self._driver
        with self._context:
            stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        return StreamList(driver, self._context, self._fences, int(stream))

    def borrow_queue(self, stream: object, in_order: bool) -> StreamList:
        """Borrow a stream. A CUDA stream is always in order.

        Parameters
        ----------
        stream : object
            See `parse_stream`. It stays the application's; the list keeps it alive.
        in_order : bool
            Ignored.

        Raises
        ------
        BadArgumentError
            ``null_stream``, ``stream_protocol``.
        TypeError
            `stream` is not a CUDA stream.
        WrongDeviceError
            ``wrong_device``, ``wrong_context``.
        """
        parsed = parse_stream(stream)
        check_stream_device(self._driver, self._context, self._ordinal, parsed)
        if parsed.handle == PER_THREAD:
            return PerThreadList(self._driver, self._context, self._fences, lent=stream)
        return StreamList(self._driver, self._context, self._fences, parsed.handle, lent=stream)

    def stream_identity(self, stream: object) -> int:
        """Return the identity of a list on this stream.

        A list keeps the stream object alive, so the handle of the object stands for one stream while the list exists.
        The default streams have the same handles on every device, so each call checks the device of the object.
        """
        parsed = parse_stream(stream)
        check_ordinal(self._ordinal, parsed)
        return identity_of(parsed)

    def borrow_event(self, native: object) -> Fence:
        """Borrow an event of torch, CuPy, Numba or cuda.core, or a CUevent.

        Parameters
        ----------
        native : object
            It stays the application's; the fence keeps it alive.

        Raises
        ------
        BadArgumentError
            ``event_not_recorded``.
        TypeError
            `native` is not a CUDA event.
        """
        return Fence(native_event(self._driver, native), source=native)

    def query_fence(self, fence: Fence) -> bool:
        """Call cuEventQuery; return whether the fence is reached."""
        return self._fences.done(fence)

    def release_fence(self, fence: Fence) -> None:
        """Recycle the event of the fence. A borrowed event stays the application's."""
        self._fences.release(fence)

    # ---- inside
    def _import(
        self, function: Callable[..., Any], describe: Callable[..., tuple[Any, object]], desc: Any,
        handle: OwnedHandle | None,
    ) -> Any:
        native, keep = describe(self._driver, desc, handle)
        try:
            with self._context:
                imported = call(function, native)
        except XsemError as error:
            # A failed semaphore import leaves the fd open (measured for 999). Codes that the bindings do not
            # know were not measured. A failed memory import with 999 closes the fd of a pipe and of /dev/null, and
            # leaves it open for size 0 (measured), so the facade asks the kernel.
            unknown = isinstance(desc, MemoryDesc) or (error.code is not None and error.code_name is None)
            raise ImportFailure(self._blame(error), fate="unknown" if unknown else "left") from error
        del keep
        if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD:
            handle.detach()  # the driver owns the fd; an NT handle stays the caller's
        return imported

    def _blame(self, error: XsemError) -> XsemError:
        """Map CUDA_ERROR_UNKNOWN of an import to a bad handle (measured), unless every call in the context fails so."""
        if not isinstance(error, DriverError) or error.code != UNKNOWN:
            return error
        try:
            with self._context:
                call(self._driver.cuMemGetInfo)
        except XsemError as other:
            if other.code == UNKNOWN:
                return error
        return BadHandleError(
            "the driver does not accept the handle", reason="refused_by_driver", call=error.call, code=error.code,
            code_name=error.code_name, likely_causes=error.likely_causes,
        )

    def _refuse(self, handle_type: SemaphoreHandleType | MemoryHandleType, what: str) -> NoReturn:
        capability = f"{what}.import.{handle_type.value}"
        raise UnsupportedError(f"cuda:{self._ordinal} does not declare {capability}", capability=capability,
                               handle_type=handle_type)

    def _give_up(self, token: Owned, destroy: Callable[..., Any]) -> None:
        native = token.give_up()
        if native is not None:
            with self._context:
                call(destroy, native)
