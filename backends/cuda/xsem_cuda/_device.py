"""One open CUDA device."""

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
from xsem_cuda._arrays import ArrayToken, LevelToken, level_of, mipmap_descriptor
from xsem_cuda._call import UNKNOWN, call
from xsem_cuda._context import Context, Quiet
from xsem_cuda._handles import Owned
from xsem_cuda._lists import PerThreadList, StreamList
from xsem_cuda._memory import buffer_descriptor, memory_descriptor
from xsem_cuda._points import Point, Points, native_event
from xsem_cuda._semaphores import SemaphoreToken, semaphore_descriptor
from xsem_cuda._streams import PER_THREAD, check_stream_device, parse_stream

__all__ = ["CudaDevice"]


class CudaDevice(DeviceDriver):
    """A device in one context.

    Parameters
    ----------
    driver : module
        ``cuda.bindings.driver``.
    device : CUdevice
    ordinal : int
    context : CUcontext
    close_context : callable
        Called once at the end: gives the primary context back, or does nothing for one that was lent.
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
        self._points = Points(driver, self._context)
        self.timeout_causes = timeout_causes

    @property
    def capabilities(self) -> Capabilities:
        """From the platform and the device's attributes."""
        return self._capabilities

    def quiet(self) -> AbstractContextManager[None]:
        """Relaxed stream-capture mode."""
        return self._quiet

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kDLCUDA and the ordinal."""
        return (2, self._ordinal)

    def native_handle(self, token: Token | None) -> int:
        """CUcontext for None; else CUexternalSemaphore, CUexternalMemory, CUdeviceptr, CUmipmappedArray, CUarray."""
        if token is None:
            return self._context.address
        if isinstance(token, Owned | LevelToken):
            return token.address
        return super().native_handle(token)

    def close(self) -> None:
        """Destroy the events and give the primary context back."""
        self._points.close()
        self._close_context()

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> SemaphoreToken:
        """Call cuImportExternalSemaphore."""
        if desc.type not in self._capabilities.semaphore_import:
            self._refuse(desc.type, "semaphore")
        driver = self._driver
        native = self._import(driver.cuImportExternalSemaphore, semaphore_descriptor, desc, handle)
        return SemaphoreToken(native, desc.type.kind)

    def release_semaphore(self, semaphore: SemaphoreToken) -> None:
        """Call cuDestroyExternalSemaphore: it would block while a wait or a signal of it is queued (measured)."""
        self._give_up(semaphore, self._driver.cuDestroyExternalSemaphore)

    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Call cuDeviceGetNvSciSyncAttributes."""
        if SemaphoreHandleType.NVSCISYNC not in self._capabilities.semaphore_import:
            self._refuse(SemaphoreHandleType.NVSCISYNC, "semaphore")
        driver = self._driver
        flags = int(driver.CUDA_NVSCISYNC_ATTR_SIGNAL) * signal | int(driver.CUDA_NVSCISYNC_ATTR_WAIT) * wait
        call(driver.cuDeviceGetNvSciSyncAttributes, attributes, self._device, flags)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Owned:
        """Call cuImportExternalMemory."""
        if desc.type not in self._capabilities.memory_import:
            self._refuse(desc.type, "memory")
        return Owned(self._import(self._driver.cuImportExternalMemory, memory_descriptor, desc, handle))

    def map_buffer(self, memory: Owned, offset: int, size: int) -> tuple[Owned, int]:
        """Call cuExternalMemoryGetMappedBuffer."""
        native = buffer_descriptor(self._driver, offset, size)
        with self._context:
            buffer = Owned(call(self._driver.cuExternalMemoryGetMappedBuffer, memory.native, native))
        return buffer, buffer.address

    def unmap_buffer(self, buffer: Owned) -> None:
        """Call cuMemFree: blocks behind any unmet wait, of whatever stream (measured)."""
        self._give_up(buffer, self._driver.cuMemFree)

    def release_memory(self, memory: Owned) -> None:
        """Call cuDestroyExternalMemory."""
        self._give_up(memory, self._driver.cuDestroyExternalMemory)

    def host_buffer(self, size: int) -> tuple[Owned, int]:
        """Call cuMemHostAlloc, usable from every context."""
        driver = self._driver
        with self._context:
            buffer = Owned(call(driver.cuMemHostAlloc, size, int(driver.CU_MEMHOSTALLOC_PORTABLE)))
        return buffer, buffer.address

    def release_host_buffer(self, buffer: Owned) -> None:
        """Call cuMemFreeHost: blocks behind any unmet wait (measured)."""
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

    # ---- lists and points
    def create_command_list(self) -> StreamList:
        """A non-blocking stream: independent of the legacy stream, which a pending wait would otherwise hold."""
        driver = self._driver
        with self._context:
            stream = call(driver.cuStreamCreate, int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        return StreamList(driver, self._context, self._points, int(stream))

    def open_command_list(self, stream: object, in_order: bool) -> StreamList:
        """Borrow a stream; a CUDA stream is always in order."""
        parsed = parse_stream(stream)
        check_stream_device(self._driver, self._context, self._ordinal, parsed)
        if parsed.handle == PER_THREAD:
            return PerThreadList(self._driver, self._context, self._points, lent=stream)
        return StreamList(self._driver, self._context, self._points, parsed.handle, lent=stream)

    def open_event(self, native: object) -> Point:
        """Borrow an event of torch, CuPy, Numba or cuda.core, or a CUevent."""
        return Point(native_event(self._driver, native), source=native)

    def done(self, point: Point) -> bool:
        """Call cuEventQuery."""
        return self._points.done(point)

    def release_point(self, point: Point) -> None:
        """Recycle its event."""
        self._points.release(point)

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
            # After a failed import of a semaphore the fd is still open (measured for 999); of a code that the bindings
            # don't know, nobody has measured anything. Memory: cuImportExternalMemory closes the fd of a pipe and of
            # /dev/null before it gives 999, and leaves it open for size 0 (measured): the kernel is asked.
            unknown = isinstance(desc, MemoryDesc) or (error.code is not None and error.code_name is None)
            raise ImportFailure(self._blame(error), fate="unknown" if unknown else "left") from error
        del keep
        if handle is not None and desc.type.os_handle_kind is OsHandleKind.FD:
            handle.detach()  # an NT handle stays the caller's
        return imported

    def _blame(self, error: XsemError) -> XsemError:
        """CUDA_ERROR_UNKNOWN of an import: a bad handle (measured), unless the context answers everything with it."""
        if not isinstance(error, DriverError) or error.code != UNKNOWN:
            return error
        try:
            with self._context:
                call(self._driver.cuMemGetInfo)
        except XsemError as other:
            if other.code == UNKNOWN:
                return error
        return BadHandleError(
            "the driver does not take the handle", reason="refused_by_driver", call=error.call, code=error.code,
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
