"""Convert xsem's memory descriptors to the driver's structs."""

from __future__ import annotations

from typing import Any

from xsem.types import MemoryDesc, OwnedHandle
from xsem_cuda.semaphores import fill_handle
from xsem_cuda.tokens import DriverObject

__all__ = ["MemoryToken", "buffer_descriptor", "memory_descriptor"]


class MemoryToken(DriverObject):
    """An imported CUexternalMemory."""

    __slots__ = ("size",)

    def __init__(self, native: Any, size: int) -> None:
        super().__init__(native)
        self.size = size   # `MemoryDesc.allocation_size` of the import


def memory_descriptor(driver: Any, desc: MemoryDesc, handle: OwnedHandle | None) -> tuple[Any, object]:
    """Return the CUDA_EXTERNAL_MEMORY_HANDLE_DESC, and an object to keep alive until the driver's call returns."""
    native = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    native.type = driver.CUexternalMemoryHandleType(desc.type.native["cuda"][1])
    native.size = desc.allocation_size
    if desc.dedicated:
        native.flags = int(driver.CUDA_EXTERNAL_MEMORY_DEDICATED)
    return native, fill_handle(native, desc, handle, "nvSciBufObject")


def buffer_descriptor(driver: Any, offset: int, size: int) -> Any:
    """Return the CUDA_EXTERNAL_MEMORY_BUFFER_DESC of a range, in bytes."""
    native = driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    native.offset = offset
    native.size = size
    return native
