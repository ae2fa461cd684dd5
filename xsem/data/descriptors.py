"""Descriptors of external semaphores and memory, for import. The constructor checks the fields.

The rules are those of cuImportExternalSemaphore and cuImportExternalMemory. The import checks whether the platform and
the device support the handle type. A descriptor of any type can therefore be created, sent and tested on any platform.
"""

from __future__ import annotations

import uuid as _uuid
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Self

from xsem.data.drm import DrmLayout
from xsem.data.handle_types import MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem.data.handles import Handle, OwnedHandle, check_nt
from xsem.data.params import UINT64_MAX, check_bool, check_int, parse_member
from xsem.data.peers import Peer
from xsem.data.pickling import carry, carry_by_multiprocessing, uncarry
from xsem.data.uuids import UUIDLike, parse_luid, parse_uuid
from xsem.errors import BadArgumentError, BadHandleError

__all__ = ["MemoryDesc", "SemaphoreDesc"]


@dataclass(frozen=True, kw_only=True)
class SemaphoreDesc:
    """Description of a semaphore that another API, device or process exported.

    `Semaphore.export` and `xsem.ipc.receive` return descriptors. For a handle from elsewhere, call the class method
    named after the handle type.

    Attributes
    ----------
    type : SemaphoreHandleType
        The handle type. The constructor also takes its name, for example ``"OPAQUE_FD"``. A file descriptor does not
        show its handle type: NVIDIA's driver imports a timeline's fd as a binary semaphore, and the reverse, without an
        error.
    handle : OwnedHandle, object with ``fileno()``, int or None
        The handle. xsem borrows an int or a file and never closes it. NVSCISYNC: the address of the object. SYNC_FD: -1
        means "already signalled". Windows: an int can be signed or unsigned; the same 64 bits are the same handle. The
        constructor refuses null and INVALID_HANDLE_VALUE (-1 or 2**64 - 1). For NT handles it also refuses the pseudo
        handles -2 to -6.
    name : str or None
        Windows: the name of the shared object, in place of a handle. The name is a non-empty str without NUL and
        without lone surrogates.
    device_uuid, driver_uuid : uuid.UUID or None
        UUIDs of the exporting device and driver; None: unknown.
    device_luid : bytes or None
        Windows handle types: the 8 bytes of the LUID of the exporting adapter (ID3D12Device::GetAdapterLuid,
        DXGI_ADAPTER_DESC::AdapterLuid, or Vulkan's deviceLUID); None: unknown. A Direct3D device has no UUID.
    peer : Peer or None
        The process that sent the descriptor to this process; None: not known, or this process. If a third process
        signals, set None (`dataclasses.replace`): the end of the sender then ends no wait.

    Raises
    ------
    BadArgumentError
        ``bad_type``, ``bad_uuid``; ``handle_xor_name``, ``name_not_allowed``, ``bad_name``; ``not_an_int``,
        ``not_a_handle``; ``not_a_peer``; ``bad_luid``, ``luid_not_allowed``.
    BadHandleError
        ``no_handle``, ``negative_fd``, ``handle_out_of_range``, ``null_handle``, ``pseudo_handle``.

    Notes
    -----
    Ownership: an import does not take the handle from the descriptor, neither on success nor on failure. `close` and
    the end of ``with`` close an `OwnedHandle` and leave any other handle open. After an error of the constructor, the
    caller still owns the handle.

    Pickling: the channels of multiprocessing take a descriptor with a file descriptor, on Windows with an NT handle
    (Queue, Pipe, Pool, ProcessPoolExecutor, arguments of a process). The receiver's descriptor has an `OwnedHandle`.
    The sender's handle stays open. A Queue pickles in a thread: keep the handle open until the receiver has the
    descriptor. Any other pickler is refused (``pickled_outside_multiprocessing``).

    Examples
    --------
    >>> desc = SemaphoreDesc.timeline_fd(7, device_uuid=bytes(16))  # 7 stands for the exported fd
    >>> desc.type.kind.value
    'timeline'
    """

    type: SemaphoreHandleType
    handle: Handle | None = None
    name: str | None = None
    device_uuid: _uuid.UUID | None = None
    driver_uuid: _uuid.UUID | None = None
    device_luid: bytes | None = None
    peer: Peer | None = None

    if TYPE_CHECKING:   # the constructor takes more than the attributes hold
        def __init__(
            self, *, type: SemaphoreHandleType | str, handle: Handle | None = None, name: str | None = None,
            device_uuid: UUIDLike | None = None, driver_uuid: UUIDLike | None = None, device_luid: bytes | None = None,
            peer: Peer | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", parse_member("type", self.type, SemaphoreHandleType, reason="bad_type"))
        if self.peer is not None and not isinstance(self.peer, Peer):
            raise BadArgumentError(f"peer must be a Peer, not {type(self.peer).__name__}", reason="not_a_peer")
        _check_identity(self)
        _check_handle(self.type, self.type.os_handle_kind, self.handle, self.name)

    def close(self) -> None:
        """Close the handle if it is an `OwnedHandle`. A borrowed handle stays open."""
        _close(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), carry(self.__dict__, self.type.os_handle_kind))

    @classmethod
    def opaque_fd(cls, fd: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None) -> Self:
        """Describe a binary semaphore by its fd (Vulkan OPAQUE_FD).

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The file descriptor. The caller keeps it, on success and on failure.
        device_uuid, driver_uuid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.OPAQUE_FD, handle=fd, **_identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32(
        cls, handle: Handle | None = None, *, name: str | None = None, device_uuid: UUIDLike | None,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe a binary semaphore by its NT handle or its name: exactly one of the two.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        name, device_uuid, driver_uuid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.OPAQUE_WIN32, handle=handle, name=name,
                   **_identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32_kmt(
        cls, handle: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None
    ) -> Self:
        """Describe a binary semaphore by its KMT handle. A KMT handle holds no reference to the object.

        Parameters
        ----------
        handle : int
            The KMT handle.
        device_uuid, driver_uuid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.OPAQUE_WIN32_KMT, handle=handle, **_identity(device_uuid, driver_uuid))

    @classmethod
    def d3d12_fence(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D12Fence by its NT handle (ID3D12Device::CreateSharedHandle) or its name.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        name, device_luid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.D3D12_FENCE, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def d3d11_fence(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D11Fence by its NT handle (ID3D11Fence::CreateSharedHandle) or its name.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        name, device_luid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.D3D11_FENCE, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def nvscisync(cls, address: int) -> Self:
        """Describe an NvSciSyncObj by its address in this process. The object must outlive the import.

        Parameters
        ----------
        address : int
            The address of the object.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.NVSCISYNC, handle=address)

    @classmethod
    def d3d11_keyed_mutex(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an IDXGIKeyedMutex by its NT handle (IDXGIResource1::CreateSharedHandle) or its name.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        name, device_luid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.D3D11_KEYED_MUTEX, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def d3d11_keyed_mutex_kmt(cls, handle: Handle, *, device_luid: bytes | None = None) -> Self:
        """Describe an IDXGIKeyedMutex by its KMT handle (IDXGIResource::GetSharedHandle).

        Parameters
        ----------
        handle : int
            The KMT handle.
        device_luid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.D3D11_KEYED_MUTEX_KMT, handle=handle, device_luid=device_luid)

    @classmethod
    def timeline_fd(cls, fd: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None) -> Self:
        """Describe a timeline semaphore by its fd.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The file descriptor. The caller keeps it, on success and on failure.
        device_uuid, driver_uuid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, handle=fd, **_identity(device_uuid, driver_uuid))

    @classmethod
    def timeline_win32(
        cls, handle: Handle | None = None, *, name: str | None = None, device_uuid: UUIDLike | None,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe a timeline semaphore by its NT handle or its name.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        name, device_uuid, driver_uuid
            As in the class.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32, handle=handle, name=name,
                   **_identity(device_uuid, driver_uuid))

    @classmethod
    def sync_fd(cls, fd: Handle) -> Self:
        """Describe a Linux sync file by its fd; -1 means an already signalled sync file.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The file descriptor. The caller keeps it, on success and on failure.

        Returns
        -------
        SemaphoreDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=SemaphoreHandleType.SYNC_FD, handle=fd)


@dataclass(frozen=True, kw_only=True)
class MemoryDesc:
    """Description of memory that another API, device or process exported.

    `Memory.export` and `xsem.ipc.receive` return descriptors. For a handle from elsewhere, call the class method named
    after the handle type.

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

    Raises
    ------
    BadArgumentError
        As in `SemaphoreDesc`; also ``bad_size``, ``dedicated_dmabuf``, ``not_a_bool``; ``layout_not_allowed``,
        ``bad_layout``; ``bad_plane``: a plane begins beyond the dma-buf.
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

    if TYPE_CHECKING:   # as in `SemaphoreDesc`
        def __init__(
            self, *, type: MemoryHandleType | str, allocation_size: int, handle: Handle | None = None,
            name: str | None = None, dedicated: bool = False, device_uuid: UUIDLike | None = None,
            driver_uuid: UUIDLike | None = None, device_luid: bytes | None = None, drm_layout: DrmLayout | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", parse_member("type", self.type, MemoryHandleType, reason="bad_type"))
        _check_identity(self)
        check_int("allocation_size", self.allocation_size, 1, UINT64_MAX, reason="bad_size")
        check_bool("dedicated", self.dedicated)
        _check_handle(self.type, self.type.os_handle_kind, self.handle, self.name)
        if self.type.dedicated:
            object.__setattr__(self, "dedicated", True)
        elif self.dedicated and self.type is MemoryHandleType.DMABUF_FD:
            raise BadArgumentError(
                "a dma-buf takes no flags, so it cannot be dedicated", reason="dedicated_dmabuf", handle_type=self.type
            )
        if self.drm_layout is not None:
            _check_layout(self.type, self.drm_layout, self.allocation_size)

    def close(self) -> None:
        """Close the handle if it is an `OwnedHandle`. A borrowed handle stays open."""
        _close(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), carry(self.__dict__, self.type.os_handle_kind))

    @classmethod
    def opaque_fd(
        cls, fd: Handle, *, allocation_size: int, device_uuid: UUIDLike | None, dedicated: bool = False,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its fd (Vulkan OPAQUE_FD). `dedicated` must match the exporter's allocation.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The file descriptor. The caller keeps it, on success and on failure.
        allocation_size, device_uuid, driver_uuid, dedicated
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.OPAQUE_FD, handle=fd, allocation_size=allocation_size, dedicated=dedicated,
                   **_identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_uuid: UUIDLike | None, dedicated: bool = False, driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its NT handle or its name: exactly one of the two.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        allocation_size, name, device_uuid, driver_uuid, dedicated
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.OPAQUE_WIN32, handle=handle, name=name, allocation_size=allocation_size,
                   dedicated=dedicated, **_identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32_kmt(
        cls, handle: Handle, *, allocation_size: int, device_uuid: UUIDLike | None, dedicated: bool = False,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe device memory by its KMT handle. A KMT handle holds no reference to the object.

        Parameters
        ----------
        handle : int
            The KMT handle.
        allocation_size, device_uuid, driver_uuid, dedicated
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.OPAQUE_WIN32_KMT, handle=handle, allocation_size=allocation_size,
                   dedicated=dedicated, **_identity(device_uuid, driver_uuid))

    @classmethod
    def d3d12_heap(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe an ID3D12Heap by its NT handle or its name.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        allocation_size, name, device_luid
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.D3D12_HEAP, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d12_resource(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe a committed ID3D12Resource by its NT handle or its name. `dedicated` is always True.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        allocation_size, name, device_luid
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.D3D12_RESOURCE, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d11_resource(
        cls, handle: Handle | None = None, *, allocation_size: int, name: str | None = None,
        device_luid: bytes | None = None,
    ) -> Self:
        """Describe an ID3D11Resource by its NT handle or its name. `dedicated` is always True.

        Parameters
        ----------
        handle : OwnedHandle, int or None
            The NT handle. The caller keeps it, on success and on failure.
        allocation_size, name, device_luid
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.D3D11_RESOURCE, handle=handle, name=name, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def d3d11_resource_kmt(
        cls, handle: Handle, *, allocation_size: int, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D11Resource by its KMT handle. `dedicated` is always True.

        Parameters
        ----------
        handle : int
            The KMT handle.
        allocation_size, device_luid
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.D3D11_RESOURCE_KMT, handle=handle, allocation_size=allocation_size,
                   device_luid=device_luid)

    @classmethod
    def nvscibuf(cls, address: int, *, allocation_size: int) -> Self:
        """Describe an NvSciBuf object by its address in this process. The object must outlive the import.

        Parameters
        ----------
        address : int
            The address of the object.
        allocation_size
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.NVSCIBUF, handle=address, allocation_size=allocation_size)

    @classmethod
    def dmabuf_fd(cls, fd: Handle, *, allocation_size: int, drm_layout: DrmLayout | None = None) -> Self:
        """Describe a Linux dma-buf by its fd, and the image in it by its `DrmLayout`.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The file descriptor. The caller keeps it, on success and on failure.
        allocation_size, drm_layout
            As in the class.

        Returns
        -------
        MemoryDesc
            The descriptor.

        Raises
        ------
        BadArgumentError, BadHandleError
            As for the constructor.
        """
        return cls(type=MemoryHandleType.DMABUF_FD, handle=fd, allocation_size=allocation_size, drm_layout=drm_layout)


def _identity(device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None) -> dict[str, Any]:
    return {"device_uuid": device_uuid, "driver_uuid": driver_uuid}


def _check_identity(desc: SemaphoreDesc | MemoryDesc) -> None:
    for field in ("device_uuid", "driver_uuid"):
        value = getattr(desc, field)
        if value is not None:
            object.__setattr__(desc, field, parse_uuid(value, field))
    if desc.device_luid is not None:
        if desc.type.os_handle_kind not in (OsHandleKind.NT, OsHandleKind.KMT):
            spelled = f"{type(desc.type).__name__}.{desc.type.name}"
            raise BadArgumentError(f"{spelled} takes no device_luid: only Windows has LUIDs", reason="luid_not_allowed",
                                   handle_type=desc.type)
        object.__setattr__(desc, "device_luid", parse_luid(desc.device_luid, "device_luid"))


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


def _check_handle(
    handle_type: SemaphoreHandleType | MemoryHandleType, os_handle_kind: OsHandleKind, handle: Handle | None,
    name: str | None,
) -> None:
    spelled = f"{type(handle_type).__name__}.{handle_type.name}"
    if name is not None and os_handle_kind is not OsHandleKind.NT:
        raise BadArgumentError(f"{spelled} takes no name", reason="name_not_allowed", handle_type=handle_type)
    if os_handle_kind is OsHandleKind.NT and (handle is None) == (name is None):
        raise BadArgumentError(
            f"{spelled} takes a handle or a name, exactly one of the two", reason="handle_xor_name",
            handle_type=handle_type,
        )
    if name is not None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise BadArgumentError(f"name must be a non-empty str without NUL, not {name!r}", reason="bad_name",
                                   handle_type=handle_type)
        # Level Zero takes a semaphore's name in UTF-8, which cannot encode a lone surrogate.
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise BadArgumentError(f"the name {name!r} has a surrogate that is not part of a pair", reason="bad_name",
                                   handle_type=handle_type)
        return
    if handle is None:
        raise BadHandleError(f"{spelled} needs a handle", reason="no_handle", handle_type=handle_type)
    if isinstance(handle, bool):
        raise BadArgumentError("a handle is an int, not bool", reason="not_an_int", handle_type=handle_type)
    if not isinstance(handle, int):
        # A KMT handle and the address of an NvSci object cannot be closed. An OwnedHandle therefore cannot own them.
        owned_nt = os_handle_kind is OsHandleKind.NT and isinstance(handle, OwnedHandle)
        if os_handle_kind is not OsHandleKind.FD and not owned_nt:
            raise BadArgumentError(
                f"{spelled} takes an int, not {type(handle).__name__}", reason="not_an_int", handle_type=handle_type
            )
        if not callable(getattr(handle, "fileno", None)):
            raise BadArgumentError(
                f"{type(handle).__name__} has no fileno()", reason="not_a_handle", handle_type=handle_type
            )
        return
    if os_handle_kind is OsHandleKind.FD:
        if handle < 0 and not (handle == -1 and handle_type is SemaphoreHandleType.SYNC_FD):
            raise BadHandleError(f"{handle} is not a file descriptor", reason="negative_fd", handle_type=handle_type)
    # A Windows handle can be a signed int. ctypes truncates an int that does not fit in a pointer, without an error.
    elif not (0 if os_handle_kind is OsHandleKind.NVSCI else -(2**63)) <= handle <= UINT64_MAX:
        raise BadHandleError(f"{spelled}: {handle:#x} is not a pointer", reason="handle_out_of_range",
                             handle_type=handle_type)
    elif handle == 0 or (os_handle_kind is OsHandleKind.KMT and handle in (-1, UINT64_MAX)):
        raise BadHandleError(f"{spelled}: the handle is {'INVALID_HANDLE_VALUE' if handle else 'null'}",
                             reason="null_handle", handle_type=handle_type)
    elif os_handle_kind is OsHandleKind.NT:
        try:
            check_nt(handle, f"{spelled}: the handle")
        except BadHandleError as error:
            error.handle_type = handle_type
            raise


def _close(handle: Handle | None) -> None:
    if isinstance(handle, OwnedHandle):
        handle.close()


def _rebuild(cls: type[SemaphoreDesc | MemoryDesc], fields: dict[str, Any]) -> SemaphoreDesc | MemoryDesc:
    return cls(**uncarry(fields))


def _reduce(desc: SemaphoreDesc | MemoryDesc) -> tuple[Any, ...]:
    return _rebuild, (type(desc), carry_by_multiprocessing(desc.__dict__, desc.type.os_handle_kind))


# The pickler of multiprocessing asks this table first, and `__reduce__` answers all other picklers.
for _cls in (SemaphoreDesc, MemoryDesc):
    ForkingPickler.register(_cls, _reduce)
