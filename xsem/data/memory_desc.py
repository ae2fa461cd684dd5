"""Descriptor of external memory, for import. The constructor checks the fields.

The rules are those of cuImportExternalMemory. The import checks whether the platform and the device support
the handle type. A descriptor of any type can therefore be created, sent and tested on any platform.
"""

from __future__ import annotations

import uuid as _uuid
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Self

from xsem.data.descriptor_fields import (
    check_handle,
    check_identity,
    close,
    identity,
    rebuild,
    reduce_by_multiprocessing,
)
from xsem.data.drm import DrmLayout
from xsem.data.handle_types import MemoryHandleType
from xsem.data.handles import Handle
from xsem.data.memory_chunks import MemoryChunk, check_chunks
from xsem.data.params import UINT64_MAX, check_bool, check_int, parse_member
from xsem.data.pickling import carry
from xsem.data.uuids import UUIDLike
from xsem.errors import BadArgumentError

__all__ = ["MemoryDesc"]


@dataclass(frozen=True, kw_only=True)
class MemoryDesc:
    """Description of memory that another API, device or process exported.

    `Memory.export` and `xsem.ipc.receive` return descriptors. For a handle from elsewhere, call the class method named
    after the handle type, as for `SemaphoreDesc`.

    Attributes
    ----------
    type : MemoryHandleType
        The handle type. The constructor also takes its name.
    allocation_size : int
        Size of the exporter's allocation in bytes (Vulkan: VkMemoryAllocateInfo::allocationSize), not the size that the
        buffer needs. CUDA does not check the size: NVIDIA's driver accepts a size 16 times too large. On Level Zero,
        the import compares the size with the size that the driver reports.
    handle, name, device_uuid, driver_uuid, device_luid
        As in `SemaphoreDesc`. NVSCIBUF: `handle` is the address of the object.
    dedicated : bool
        CUDA_EXTERNAL_MEMORY_DEDICATED. The constructor sets it for D3D12_RESOURCE, D3D11_RESOURCE and
        D3D11_RESOURCE_KMT, and refuses it for DMABUF_FD.
    drm_layout : DrmLayout or None
        DMABUF_FD: modifier and planes of the image in the dma-buf; None: unknown. The import refuses a modifier that
        the device does not support.
    chunks : tuple of MemoryChunk
        OPAQUE_FD: the allocations of memory that consists of several, in the order of their addresses. `handle` is then
        None, and `allocation_size` is the sum of their sizes. Only devices with `Feature.MEMORY_CHUNKS` import such
        memory, as one range. Empty: the memory is one allocation. The constructor takes any sequence.

    Raises
    ------
    BadArgumentError
        As in `SemaphoreDesc`; also ``bad_size``, ``dedicated_dmabuf``, ``not_a_bool``; ``layout_not_allowed``,
        ``bad_layout``; ``bad_plane``: a plane begins beyond the dma-buf; ``bad_chunks``: `chunks` contradicts itself or
        another field.
    BadHandleError
        As in `SemaphoreDesc`.

    Notes
    -----
    Ownership: as in `SemaphoreDesc`.

    Examples
    --------
    >>> desc = MemoryDesc.opaque_fd(7, allocation_size=1 << 20, device_uuid=bytes(16))  # 7 stands for the exported fd
    >>> desc.allocation_size
    1048576
    """

    type: MemoryHandleType
    allocation_size: int
    handle: Handle | None = None
    name: str | None = None
    dedicated: bool = False
    device_uuid: _uuid.UUID | None = None
    driver_uuid: _uuid.UUID | None = None
    device_luid: bytes | None = None
    drm_layout: DrmLayout | None = None
    chunks: tuple[MemoryChunk, ...] = ()

    if TYPE_CHECKING:   # as in `SemaphoreDesc`
        def __init__(
            self, *, type: MemoryHandleType | str, allocation_size: int, handle: Handle | None = None,
            name: str | None = None, dedicated: bool = False, device_uuid: UUIDLike | None = None,
            driver_uuid: UUIDLike | None = None, device_luid: bytes | None = None, drm_layout: DrmLayout | None = None,
            chunks: Sequence[MemoryChunk] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", parse_member("type", self.type, MemoryHandleType, reason="bad_type"))
        check_identity(self)
        check_int("allocation_size", self.allocation_size, 1, UINT64_MAX, reason="bad_size")
        check_bool("dedicated", self.dedicated)
        if type(self.chunks) is not tuple or self.chunks:
            object.__setattr__(self, "chunks", check_chunks(
                self.type, self.chunks, self.allocation_size, dedicated=self.dedicated,
                other_handle=self.handle is not None or self.name is not None))
        if not self.chunks:
            check_handle(self.type, self.type.os_handle_kind, self.handle, self.name)
        if self.type.dedicated:
            object.__setattr__(self, "dedicated", True)
        elif self.dedicated and self.type is MemoryHandleType.DMABUF_FD:
            raise BadArgumentError(
                "a dma-buf takes no flags, so it cannot be dedicated", reason="dedicated_dmabuf", handle_type=self.type
            )
        if self.drm_layout is not None:
            _check_layout(self.type, self.drm_layout, self.allocation_size)

    def close(self) -> None:
        """Close the handle, or the handles of all chunks, if they are `OwnedHandle`s. Borrowed handles stay open."""
        close(self.handle)
        for chunk in self.chunks:
            chunk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), carry(self.__dict__, self.type.os_handle_kind))

    @classmethod
    def opaque_fd(
        cls, fd: Handle, *, allocation_size: int, device_uuid: UUIDLike | None, dedicated: bool = False,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its fd (Vulkan OPAQUE_FD). `dedicated` must match the exporter's allocation.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=MemoryHandleType.OPAQUE_FD, handle=fd, allocation_size=allocation_size, dedicated=dedicated,
                   **identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_uuid: UUIDLike | None, dedicated: bool = False, driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its NT handle or its name: exactly one of the two."""
        return cls(type=MemoryHandleType.OPAQUE_WIN32, handle=handle, name=name, allocation_size=allocation_size,
                   dedicated=dedicated, **identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32_kmt(
        cls, handle: Handle, *, allocation_size: int, device_uuid: UUIDLike | None, dedicated: bool = False,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its KMT handle, an int. It holds no reference to the object."""
        return cls(type=MemoryHandleType.OPAQUE_WIN32_KMT, handle=handle, allocation_size=allocation_size,
                   dedicated=dedicated, **identity(device_uuid, driver_uuid))

    @classmethod
    def d3d12_heap(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe an ID3D12Heap by its NT handle or its name."""
        return cls(type=MemoryHandleType.D3D12_HEAP, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d12_resource(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe a committed ID3D12Resource by its NT handle or its name. `dedicated` is always True."""
        return cls(type=MemoryHandleType.D3D12_RESOURCE, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d11_resource(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe an ID3D11Resource by its NT handle or its name. `dedicated` is always True."""
        return cls(type=MemoryHandleType.D3D11_RESOURCE, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d11_resource_kmt(
        cls, handle: Handle, *, allocation_size: int, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D11Resource by its KMT handle, an int. `dedicated` is always True."""
        return cls(type=MemoryHandleType.D3D11_RESOURCE_KMT, handle=handle, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def nvscibuf(cls, address: int, *, allocation_size: int) -> Self:
        """Describe an NvSciBuf object by its address in this process. The object must outlive the import.

        Parameters
        ----------
        address : int
            The address, as the handle.
        """
        return cls(type=MemoryHandleType.NVSCIBUF, handle=address, allocation_size=allocation_size)

    @classmethod
    def dmabuf_fd(cls, fd: Handle, *, allocation_size: int, drm_layout: DrmLayout | None = None) -> Self:
        """Describe a Linux dma-buf by its fd, and the image in it by its `DrmLayout`.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=MemoryHandleType.DMABUF_FD, handle=fd, allocation_size=allocation_size, drm_layout=drm_layout)

    @classmethod
    def host_memory_fd(cls, fd: Handle, *, allocation_size: int) -> Self:
        """Describe portable memory by the fd of its sealed memfd (docs/host-objects.md).

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=MemoryHandleType.HOST_MEMORY_FD, handle=fd, allocation_size=allocation_size)

    @classmethod
    def host_memory_win32(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None
    ) -> Self:
        """Describe portable memory by the NT handle of its section, or by its name: exactly one of the two."""
        return cls(type=MemoryHandleType.HOST_MEMORY_WIN32, handle=handle, name=name, allocation_size=allocation_size)


def _check_layout(handle_type: MemoryHandleType, layout: DrmLayout, size: int) -> None:
    if not isinstance(layout, DrmLayout):
        raise BadArgumentError(f"drm_layout must be a DrmLayout, not {type(layout).__name__}", reason="bad_layout",
                               handle_type=handle_type)
    if handle_type is not MemoryHandleType.DMABUF_FD:
        raise BadArgumentError(f"MemoryHandleType.{handle_type.name} takes no drm_layout: only a dma-buf has one",
                               reason="layout_not_allowed", handle_type=handle_type)
    for index, plane in enumerate(layout.planes):
        if plane.offset >= size:
            raise BadArgumentError(f"plane {index} begins at {plane.offset}, beyond the dma-buf of {size} bytes",
                                   reason="bad_plane", handle_type=handle_type)


# The pickler of multiprocessing asks this table first, and `__reduce__` answers all other picklers.
ForkingPickler.register(MemoryDesc, reduce_by_multiprocessing)
