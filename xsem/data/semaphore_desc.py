"""Descriptor of an external semaphore, for import. The constructor checks the fields.

The rules are those of cuImportExternalSemaphore. The import checks whether the platform and the device support
the handle type. A descriptor of any type can therefore be created, sent and tested on any platform.
"""

from __future__ import annotations

import uuid as _uuid
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
from xsem.data.handle_types import SemaphoreHandleType
from xsem.data.handles import Handle
from xsem.data.params import parse_member
from xsem.data.peers import Peer
from xsem.data.pickling import carry
from xsem.data.uuids import UUIDLike
from xsem.errors import BadArgumentError

__all__ = ["SemaphoreDesc"]


@dataclass(frozen=True, kw_only=True)
class SemaphoreDesc:
    """Description of a semaphore that another API, device or process exported.

    `Semaphore.export` and `xsem.ipc.receive` return descriptors. For a handle from elsewhere, call the class method
    named after the handle type. Its parameters are the attributes that this type has, and its errors are those of the
    constructor.

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
        UUIDs of the exporting device and driver; None: unknown. The import refuses another device's, except for sync
        files, dma-bufs and NvSci objects, which may come from any device.
    device_luid : bytes or None
        Windows handle types: the 8 bytes of the LUID of the exporting adapter (ID3D12Device::GetAdapterLuid,
        DXGI_ADAPTER_DESC::AdapterLuid, or Vulkan's deviceLUID); None: unknown. A Direct3D device has no UUID.
    peer : Peer or None
        The process that sent the descriptor to this process; None: not known, or this process. It counts as a signaller
        of an import (docs/explanation/peers.md). If another process signals, set that process, or None: the end of the
        sender then ends no wait (`dataclasses.replace`).

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
    descriptor. The sender keeps a duplicate for the receiver for at most 60 s; `xsem.ipc.Transfer` sets another time.
    Any other pickler is refused (``pickled_outside_multiprocessing``).

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
        check_identity(self)
        check_handle(self.type, self.type.os_handle_kind, self.handle, self.name)

    def close(self) -> None:
        """Close the handle if it is an `OwnedHandle`. A borrowed handle stays open."""
        close(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), carry(self.__dict__, self.type.os_handle_kind))

    @classmethod
    def opaque_fd(cls, fd: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None) -> Self:
        """Describe a binary semaphore by its fd (Vulkan OPAQUE_FD).

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=SemaphoreHandleType.OPAQUE_FD, handle=fd, **identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32(
        cls, handle: Handle | None = None, *, name: str | None = None, device_uuid: UUIDLike | None,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe a binary semaphore by its NT handle or its name: exactly one of the two."""
        return cls(type=SemaphoreHandleType.OPAQUE_WIN32, handle=handle, name=name,
                   **identity(device_uuid, driver_uuid))

    @classmethod
    def opaque_win32_kmt(
        cls, handle: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None
    ) -> Self:
        """Describe a binary semaphore by its KMT handle, an int. It holds no reference to the object."""
        return cls(type=SemaphoreHandleType.OPAQUE_WIN32_KMT, handle=handle, **identity(device_uuid, driver_uuid))

    @classmethod
    def d3d12_fence(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D12Fence by its NT handle (ID3D12Device::CreateSharedHandle) or its name."""
        return cls(type=SemaphoreHandleType.D3D12_FENCE, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def d3d11_fence(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an ID3D11Fence by its NT handle (ID3D11Fence::CreateSharedHandle) or its name."""
        return cls(type=SemaphoreHandleType.D3D11_FENCE, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def nvscisync(cls, address: int) -> Self:
        """Describe an NvSciSyncObj by its address in this process. The object must outlive the import.

        Parameters
        ----------
        address : int
            The address, as the handle.
        """
        return cls(type=SemaphoreHandleType.NVSCISYNC, handle=address)

    @classmethod
    def d3d11_keyed_mutex(
        cls, handle: Handle | None = None, *, name: str | None = None, device_luid: bytes | None = None
    ) -> Self:
        """Describe an IDXGIKeyedMutex by its NT handle (IDXGIResource1::CreateSharedHandle) or its name."""
        return cls(type=SemaphoreHandleType.D3D11_KEYED_MUTEX, handle=handle, name=name, device_luid=device_luid)

    @classmethod
    def d3d11_keyed_mutex_kmt(cls, handle: Handle, *, device_luid: bytes | None = None) -> Self:
        """Describe an IDXGIKeyedMutex by its KMT handle, an int (IDXGIResource::GetSharedHandle)."""
        return cls(type=SemaphoreHandleType.D3D11_KEYED_MUTEX_KMT, handle=handle, device_luid=device_luid)

    @classmethod
    def timeline_fd(cls, fd: Handle, *, device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None = None) -> Self:
        """Describe a timeline semaphore by its fd.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, handle=fd, **identity(device_uuid, driver_uuid))

    @classmethod
    def timeline_win32(
        cls, handle: Handle | None = None, *, name: str | None = None, device_uuid: UUIDLike | None,
        driver_uuid: UUIDLike | None = None,
    ) -> Self:
        """Describe a timeline semaphore by its NT handle or its name: exactly one of the two."""
        return cls(type=SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32, handle=handle, name=name,
                   **identity(device_uuid, driver_uuid))

    @classmethod
    def sync_fd(cls, fd: Handle) -> Self:
        """Describe a Linux sync file by its fd; -1 means an already signalled sync file.

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=SemaphoreHandleType.SYNC_FD, handle=fd)

    @classmethod
    def host_timeline_fd(cls, fd: Handle) -> Self:
        """Describe a portable timeline by its fd (docs/host-objects.md).

        Parameters
        ----------
        fd : OwnedHandle, object with ``fileno()`` or int
            The handle. The caller keeps it, on success and on failure.
        """
        return cls(type=SemaphoreHandleType.HOST_TIMELINE_FD, handle=fd)

    @classmethod
    def host_timeline_win32(cls, handle: Handle | None = None, *, name: str | None = None) -> Self:
        """Describe a portable timeline by the NT handle of its section, or by its name: exactly one of the two."""
        return cls(type=SemaphoreHandleType.HOST_TIMELINE_WIN32, handle=handle, name=name)


# The pickler of multiprocessing asks this table first, and `__reduce__` answers all other picklers.
ForkingPickler.register(SemaphoreDesc, reduce_by_multiprocessing)
