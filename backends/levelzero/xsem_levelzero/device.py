"""One open Level Zero device."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_void_p
from typing import ClassVar, Final

from xsem.errors import BadArgumentError, BadHandleError, DriverError, UnsupportedError, WrongDeviceError, XsemError
from xsem.portable import SharedMemory
from xsem.spi import (
    BorrowedEvents,
    BorrowedQueues,
    DeviceDriver,
    HandleState,
    HostFences,
    HostMemory,
    HostMemoryImport,
    Images,
    Imported,
    ImportFailure,
    MemoryImport,
    MemorySharing,
    SemaphoreImport,
    Token,
    queue_handle,
)
from xsem.types import (
    Capabilities,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
)
from xsem_levelzero.core import Core
from xsem_levelzero.exports import Allocation, create_allocation, share_allocation
from xsem_levelzero.fences import Events, Fence, foreign_event
from xsem_levelzero.images import Image, make_image
from xsem_levelzero.memory import Memory, SharedWithHost, free, import_memory, new_host_memory, share_with_host
from xsem_levelzero.queue import ImmediateList, check_immediate
from xsem_levelzero.results import INVALID, UNSUPPORTED
from xsem_levelzero.semaphores import Semaphore, import_semaphore
from xsem_levelzero.sycl import list_of_sycl, sycl_address

__all__ = ["LevelZeroDevice"]

_DLPACK_ONEAPI: Final = 14


class LevelZeroDevice(
    DeviceDriver, SemaphoreImport, HostFences, MemoryImport, HostMemoryImport, MemorySharing, Images, HostMemory,
    BorrowedQueues, BorrowedEvents,
):
    """A device in one context, of a driver without quirks. `xsem_levelzero.intel.devices` has classes for others."""

    list_class: ClassVar[type[ImmediateList]] = ImmediateList
    release_semaphore_blocks = False   # the driver only deletes an object
    regular_list_refuses_waits: ClassVar[bool] = True   # so the first wait or signal tells the type of a list

    def __init__(
        self, core: Core, index: int, capabilities: Capabilities, *, driver_closes_exports: bool, compresses: bool,
        own_context: bool, causes: Mapping[str, Sequence[str]],
    ) -> None:
        self._core = core
        self._index = index
        self._capabilities = capabilities
        self._driver_closes_exports = driver_closes_exports   # zeMemFree closes the fds of exported memory
        # The addresses of created memory, if other memory may be compressed (`intel.compression`).
        self._uncompressed: set[int] | None = set() if compresses else None
        self._own_context = own_context
        self.undeclared_causes = causes
        self._events = Events(core)

    @staticmethod
    def own_queues(core: Core) -> int:
        """The number of queues for own lists."""
        return core.queues.number

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities determined when the device was first opened."""
        return self._capabilities

    def native_handle(self, token: Token | None) -> int:
        """The ze_context_handle_t for None, else the handle of a semaphore, an image or an event, or a USM pointer."""
        if token is None:
            return self._core.context
        if isinstance(token, Semaphore | Image | Fence):
            return token.handle
        if isinstance(token, Memory | SharedWithHost | Allocation):
            return token.address
        return super().native_handle(token)

    def close(self) -> None:
        """Destroy the events, and the context if the device owns it. Both stay if the driver still uses them."""
        if not self._finish():
            return
        self._events.close()
        if self._own_context and not self._core.has_remains:
            self._core.loader.end("zeContextDestroy", self._core.context)

    def _finish(self) -> bool:
        """End what the driver still does. False: it does not end, and uses events."""
        return True

    # ---- semaphores
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Call zeDeviceImportExternalSemaphoreExt."""
        try:
            made = self._import_semaphore(desc, handle)
        except XsemError as error:
            raise ImportFailure(_blame(error, "a semaphore", desc), handle="unknown") from error
        return Imported(made, handle=_state_of(desc))

    def _import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        return import_semaphore(self._core, desc, handle)

    def release_semaphore(self, semaphore: Semaphore) -> None:
        """Call zeDeviceReleaseExternalSemaphoreExt."""
        semaphore.release(self._core)

    # ---- memory
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Call zeMemAllocDevice with the handle."""
        images = Feature.IMAGE in self._capabilities.features
        try:
            made = import_memory(self._core, desc, handle, keep=images)
        except XsemError as error:
            raise ImportFailure(_blame(error, "memory", desc), handle="unknown") from error
        return Imported(made, handle=_state_of(desc))

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Allocation, int]:
        """Call zeMemAllocDevice with ze_external_memory_export_desc_t. The size is a multiple of 4096 bytes."""
        # `dedicated` has no meaning here: Level Zero has no resource for an allocation.
        memory = create_allocation(self._core, type, size, driver_closes=self._driver_closes_exports)
        if self._uncompressed is not None:
            self._uncompressed.add(memory.address)
        return memory, memory.size

    def share_memory(
        self, type: MemoryHandleType, address: int, size: int, owner: object
    ) -> tuple[Allocation, int, int]:
        """Call zeMemGetAllocProperties, to check that the driver exports the allocation of the range."""
        memory, offset = share_allocation(
            self._core, type, address, size, owner, driver_closes=self._driver_closes_exports,
            only=self._uncompressed)
        return memory, memory.size, offset

    def export_memory(self, memory: Allocation) -> OwnedHandle:
        """Call zeMemGetAllocProperties with ze_external_memory_export_fd_t. The fd is the caller's."""
        return memory.export(self._core)

    def import_host_memory(self, memory: SharedMemory) -> SharedWithHost:
        """Call zeMemAllocHost on the pages."""
        return share_with_host(self._core, memory)

    def dlpack_device(self) -> tuple[int, int]:
        """Return DLPack's kDLOneAPI and the index of the device."""
        return (_DLPACK_ONEAPI, self._index)

    def map_buffer(self, memory: Memory | SharedWithHost | Allocation, offset: int, size: int) -> tuple[int, int]:
        """Return a USM pointer as the token and as the address. The whole allocation is mapped already."""
        return memory.address + offset, memory.address + offset

    def unmap_buffer(self, buffer: int) -> None:
        """Do nothing: the pointer belongs to the memory."""

    def release_memory(self, memory: Memory | SharedWithHost | Allocation) -> None:
        """Call zeMemFree, except for shared memory."""
        if self._uncompressed is not None and isinstance(memory, Allocation) and not memory.shared:
            self._uncompressed.discard(memory.address)   # before the driver gives the address to other memory
        memory.release(self._core)

    def host_buffer(self, size: int) -> tuple[int, int]:
        """Call zeMemAllocHost, and return the USM pointer as the token and as the address."""
        address = new_host_memory(self._core, size)
        return address, address

    def release_host_buffer(self, buffer: int) -> None:
        """Call zeMemFree."""
        free(self._core, buffer)

    # ---- images
    def map_mipmapped_array(self, memory: Memory | SharedWithHost | Allocation, desc: MipmapDesc) -> Image:
        """Call zeImageCreate."""
        if isinstance(memory, SharedWithHost):
            raise UnsupportedError("xsem maps no images onto memory of the host: copy between a buffer on it and an "
                                   "image", capability="mipmapped_array.host_memory")
        if isinstance(memory, Allocation):
            raise UnsupportedError(
                "Level Zero makes images of imported memory only: create the memory where the image is made, for "
                "example on the device's companion_exporter()", capability="mipmapped_array", reason="created_memory")
        return make_image(self._core, memory, desc)

    def mipmap_level(self, array: Image, level: int) -> Image:
        """Return the image itself: it has one level."""
        return array

    def release_array(self, array: Image) -> None:
        """Call zeImageDestroy."""
        array.destroy(self._core)

    # ---- queues and fences
    def create_queue(self) -> ImmediateList:
        """Create an in-order immediate list on the next queue of the group."""
        number = next(_numbers_of(self._core.driver, self._core.device)) % self._capabilities.independent_lists
        handle, in_order = self._core.create_list(number)
        return self.list_class(self._core, self._events, handle, in_order=in_order)

    def queue_identity(self, stream: object) -> int | None:
        """Return the ze_command_list_handle_t: the identity of a borrowed list. None for a SYCL queue."""
        if sycl_address(stream) is not None:
            return None   # only the SYCL runtime knows the list
        return queue_handle(stream, "ze_command_list_handle_t")

    def borrow_queue(self, stream: object, in_order: bool) -> ImmediateList:
        """Borrow an immediate list of this context, or of a SYCL queue. The application keeps ownership."""
        address = sycl_address(stream)
        handle = queue_handle(stream, "ze_command_list_handle_t") if address is None else list_of_sycl(address)
        known = check_immediate(self._core, handle)
        if not known and not self.regular_list_refuses_waits:
            raise BadArgumentError(
                "neither the loader nor the driver tells whether the list is immediate, and this driver takes waits on "
                "a regular list, too: use a loader of 1.17 or newer", reason="not_immediate")
        self._check_owner("zeCommandListGetDeviceHandle", handle, self._core.device, "device", reason="wrong_device")
        self._check_owner("zeCommandListGetContextHandle", handle, self._core.context, "context",
                          reason="wrong_context")
        return self.list_class(
            self._core, self._events, handle, in_order=in_order, lent=stream, known_immediate=known)

    def borrow_event(self, native: object) -> Fence:
        """Borrow a ze_event_handle_t of this context. The application keeps ownership."""
        return foreign_event(self._core, native)

    def query_fence(self, fence: Fence) -> bool:
        """Call zeEventQueryStatus."""
        return self._events.done(fence)

    def wait_fence(self, fence: Fence, timeout_ns: int) -> bool:
        """Call zeEventHostSynchronize."""
        return self._events.wait(fence, timeout_ns)

    def create_host_fence(self) -> Fence:
        """Take an event."""
        return self._events.take()

    def reach_host_fence(self, fence: Fence) -> None:
        """Call zeEventHostSignal."""
        self._events.reach(fence)

    def release_fence(self, fence: Fence) -> None:
        """Return the event to the pool, for use after the device has signalled it."""
        self._events.release(fence)

    # ---- inside
    def _check_owner(self, name: str, commands: int, expected: int, what: str, *, reason: str) -> None:
        """Refuse a list of another device or context if the loader (1.17 and newer) identifies it."""
        if self._core.loader.find(name) is None:
            return
        owner = c_void_p()
        try:
            self._core.loader.do(name, commands, byref(owner))
        except UnsupportedError:
            return  # the driver is older than the loader
        if owner.value != expected:
            raise WrongDeviceError(
                f"the list belongs to another {what}", expected=f"{what} {expected:#x}",
                actual=f"{what} {owner.value or 0:#x}", reason=reason,
                likely_causes=("pass what it belongs to: open_device('levelzero', native=…)",),
            )


_numbers: dict[tuple[int, int, int], Iterator[int]] = {}


def _numbers_of(driver: int, device: int) -> Iterator[int]:
    """Return the counter of the own lists on a device, common to all its `LevelZeroDevice` objects in this process."""
    return _numbers.setdefault((os.getpid(), driver, device), itertools.count())


def _state_of(desc: SemaphoreDesc | MemoryDesc) -> HandleState:
    """Return the state of the handle after an import that succeeded."""
    # Releases of Intel's driver differ (docs/levelzero.md): before 26.05, the driver never closes an imported fd, 26.05
    # closes it after success, and 26.09 also after a failure. An NT handle stays the caller's.
    return "unknown" if desc.type.os_handle_kind is OsHandleKind.FD else "left"


def _blame(error: XsemError, what: str, desc: SemaphoreDesc | MemoryDesc) -> XsemError:
    """Translate a refused import into a bad handle."""
    # The driver has imported this type before. Therefore the handle is bad, also for codes with another meaning.
    known = error.code in INVALID or error.code in UNSUPPORTED
    if not known or not isinstance(error, DriverError | UnsupportedError):
        return error
    is_fd = desc.type.os_handle_kind is OsHandleKind.FD
    return BadHandleError(
        f"the driver does not take the handle as {what}", reason="refused_by_driver", call=error.call,
        code=error.code, code_name=error.code_name, likely_causes=(
            f"it is not {what} exported on this device" +
            (", by a driver that exports DRM syncobjs and dma-bufs (Mesa's does)" if is_fd else ""),),
    )
