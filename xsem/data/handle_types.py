"""Handle types of semaphores and memory, with the names and numbers of each vendor."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["MemoryHandleType", "OsHandleKind", "SemaphoreHandleType", "SemaphoreKind"]


class SemaphoreKind(str, enum.Enum):
    """Kind of a semaphore: the meaning of its signals and waits, independent of the handle.

    Examples
    --------
    >>> SemaphoreHandleType.D3D12_FENCE.kind is SemaphoreKind.TIMELINE
    True
    """

    BINARY = "binary"
    """Two states, signalled and not signalled. Signals and waits take no value."""
    TIMELINE = "timeline"
    """A 64-bit value, also of a D3D fence. A wait is met when the value is at least the requested one."""
    KEYED_MUTEX = "keyed_mutex"
    """An IDXGIKeyedMutex. A wait acquires it with a key, and a signal releases it with a key."""
    NVSCISYNC = "nvscisync"
    """An NvSciSync object. Each signal and wait takes the address of an NvSciSyncFence."""
    SYNC_FILE = "sync_file"
    """A Linux sync file. It holds one signal, for one wait or one export."""


class OsHandleKind(str, enum.Enum):
    """Kind of a handle in the operating system.

    Examples
    --------
    >>> MemoryHandleType.DMABUF_FD.os_handle_kind is OsHandleKind.FD
    True
    """

    FD = "fd"
    """A POSIX file descriptor."""
    NT = "nt"
    """A Windows NT handle, or the name of its object."""
    KMT = "kmt"
    """A Windows global share handle (KMT handle). It holds no reference and cannot be closed."""
    NVSCI = "nvsci"
    """The address of an NvSciBuf or NvSciSync object in this process."""


class SemaphoreHandleType(str, enum.Enum):
    """Handle type of an external semaphore. Reports and command-line options show the value.

    The names are those of CUDA (``CUexternalSemaphoreHandleType``). SYNC_FD comes from OpenCL and Vulkan, and
    HOST_TIMELINE_FD and HOST_TIMELINE_WIN32 are xsem's own.

    Examples
    --------
    >>> SemaphoreHandleType("opaque_fd").native["cuda"]
    ('CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD', 1)
    """

    OPAQUE_FD = "opaque_fd"
    """File descriptor of a binary semaphore."""
    OPAQUE_WIN32 = "opaque_win32"
    """NT handle of a binary semaphore."""
    OPAQUE_WIN32_KMT = "opaque_win32_kmt"
    """KMT handle of a binary semaphore."""
    D3D12_FENCE = "d3d12_fence"
    """NT handle of an ID3D12Fence."""
    D3D11_FENCE = "d3d11_fence"
    """NT handle of an ID3D11Fence."""
    NVSCISYNC = "nvscisync"
    """Address of an NvSciSyncObj."""
    D3D11_KEYED_MUTEX = "d3d11_keyed_mutex"
    """NT handle of an IDXGIKeyedMutex."""
    D3D11_KEYED_MUTEX_KMT = "d3d11_keyed_mutex_kmt"
    """KMT handle of an IDXGIKeyedMutex."""
    TIMELINE_SEMAPHORE_FD = "timeline_semaphore_fd"
    """File descriptor of a timeline semaphore."""
    TIMELINE_SEMAPHORE_WIN32 = "timeline_semaphore_win32"
    """NT handle of a timeline semaphore."""
    SYNC_FD = "sync_fd"
    """File descriptor of a Linux sync file."""
    HOST_TIMELINE_FD = "host_timeline_fd"
    """File descriptor of a portable timeline, which is a page of host memory (docs/host-objects.md)."""
    HOST_TIMELINE_WIN32 = "host_timeline_win32"
    """NT handle of a portable timeline."""

    @property
    def kind(self) -> SemaphoreKind:
        """Kind of the semaphore: binary, timeline, keyed mutex, NvSciSync or sync file."""
        return _SEMAPHORES[self][0]

    @property
    def os_handle_kind(self) -> OsHandleKind:
        """Kind of the handle: file descriptor, NT handle, KMT handle or NvSci object."""
        return _SEMAPHORES[self][1]

    @property
    def device_bound(self) -> bool:
        """True if a handle of this type is valid only on the exporting device."""
        return _SEMAPHORES[self][2]

    @property
    def portable(self) -> bool:
        """True if it is in host memory and belongs to no device: any device that declares the type imports it."""
        return self in (SemaphoreHandleType.HOST_TIMELINE_FD, SemaphoreHandleType.HOST_TIMELINE_WIN32)

    @property
    def native(self) -> Mapping[str, tuple[str, int]]:
        """Names and numbers of the vendors: ``{"cuda": (name, number), "cudart": …, "levelzero": …, …}``.

        A vendor without an equivalent type is absent. Vulkan and OpenGL specify the kind of a semaphore separately.
        TIMELINE_SEMAPHORE_FD therefore has their number of OPAQUE_FD.
        """
        return _SEMAPHORE_NATIVE[self]


class MemoryHandleType(str, enum.Enum):
    """Handle type of external memory.

    The names are those of CUDA (``CUexternalMemoryHandleType``). HOST_MEMORY_FD and HOST_MEMORY_WIN32 are xsem's own.

    Examples
    --------
    >>> MemoryHandleType.DMABUF_FD.native["vulkan"]
    ('VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT', 512)
    """

    OPAQUE_FD = "opaque_fd"
    """File descriptor of device memory."""
    OPAQUE_WIN32 = "opaque_win32"
    """NT handle of device memory."""
    OPAQUE_WIN32_KMT = "opaque_win32_kmt"
    """KMT handle of device memory."""
    D3D12_HEAP = "d3d12_heap"
    """NT handle of an ID3D12Heap."""
    D3D12_RESOURCE = "d3d12_resource"
    """NT handle of a committed ID3D12Resource."""
    D3D11_RESOURCE = "d3d11_resource"
    """NT handle of an ID3D11Resource."""
    D3D11_RESOURCE_KMT = "d3d11_resource_kmt"
    """KMT handle of an ID3D11Resource."""
    NVSCIBUF = "nvscibuf"
    """Address of an NvSciBuf object."""
    DMABUF_FD = "dmabuf_fd"
    """File descriptor of a Linux dma-buf."""
    HOST_MEMORY_FD = "host_memory_fd"
    """File descriptor of portable memory, which is host memory (docs/host-objects.md)."""
    HOST_MEMORY_WIN32 = "host_memory_win32"
    """NT handle of portable memory."""

    @property
    def os_handle_kind(self) -> OsHandleKind:
        """Kind of the handle: file descriptor, NT handle, KMT handle or NvSci object."""
        return _MEMORIES[self][0]

    @property
    def device_bound(self) -> bool:
        """True if a handle of this type is valid only on the exporting device."""
        return _MEMORIES[self][1]

    @property
    def portable(self) -> bool:
        """True if it is host memory and belongs to no device: any device that declares the type imports it."""
        return self in (MemoryHandleType.HOST_MEMORY_FD, MemoryHandleType.HOST_MEMORY_WIN32)

    @property
    def dedicated(self) -> bool:
        """True if CUDA_EXTERNAL_MEMORY_DEDICATED must be set (cuImportExternalMemory)."""
        return _MEMORIES[self][2]

    @property
    def native(self) -> Mapping[str, tuple[str, int]]:
        """Names and numbers of the vendors, as in `SemaphoreHandleType.native`."""
        return _MEMORY_NATIVE[self]


_S = SemaphoreHandleType
_M = MemoryHandleType

# kind, handle kind, device-bound
_SEMAPHORES: Final[Mapping[SemaphoreHandleType, tuple[SemaphoreKind, OsHandleKind, bool]]] = {
    _S.OPAQUE_FD: (SemaphoreKind.BINARY, OsHandleKind.FD, True),
    _S.OPAQUE_WIN32: (SemaphoreKind.BINARY, OsHandleKind.NT, True),
    _S.OPAQUE_WIN32_KMT: (SemaphoreKind.BINARY, OsHandleKind.KMT, True),
    _S.D3D12_FENCE: (SemaphoreKind.TIMELINE, OsHandleKind.NT, False),
    _S.D3D11_FENCE: (SemaphoreKind.TIMELINE, OsHandleKind.NT, False),
    _S.NVSCISYNC: (SemaphoreKind.NVSCISYNC, OsHandleKind.NVSCI, False),
    _S.D3D11_KEYED_MUTEX: (SemaphoreKind.KEYED_MUTEX, OsHandleKind.NT, False),
    _S.D3D11_KEYED_MUTEX_KMT: (SemaphoreKind.KEYED_MUTEX, OsHandleKind.KMT, False),
    _S.TIMELINE_SEMAPHORE_FD: (SemaphoreKind.TIMELINE, OsHandleKind.FD, True),
    _S.TIMELINE_SEMAPHORE_WIN32: (SemaphoreKind.TIMELINE, OsHandleKind.NT, True),
    _S.SYNC_FD: (SemaphoreKind.SYNC_FILE, OsHandleKind.FD, False),
    _S.HOST_TIMELINE_FD: (SemaphoreKind.TIMELINE, OsHandleKind.FD, False),
    _S.HOST_TIMELINE_WIN32: (SemaphoreKind.TIMELINE, OsHandleKind.NT, False),
}

# handle kind, device-bound, dedicated
_MEMORIES: Final[Mapping[MemoryHandleType, tuple[OsHandleKind, bool, bool]]] = {
    _M.OPAQUE_FD: (OsHandleKind.FD, True, False),
    _M.OPAQUE_WIN32: (OsHandleKind.NT, True, False),
    _M.OPAQUE_WIN32_KMT: (OsHandleKind.KMT, True, False),
    _M.D3D12_HEAP: (OsHandleKind.NT, False, False),
    _M.D3D12_RESOURCE: (OsHandleKind.NT, False, True),
    _M.D3D11_RESOURCE: (OsHandleKind.NT, False, True),
    _M.D3D11_RESOURCE_KMT: (OsHandleKind.KMT, False, True),
    _M.NVSCIBUF: (OsHandleKind.NVSCI, False, False),
    _M.DMABUF_FD: (OsHandleKind.FD, False, False),
    _M.HOST_MEMORY_FD: (OsHandleKind.FD, False, False),
    _M.HOST_MEMORY_WIN32: (OsHandleKind.NT, False, False),
}

_Native = Mapping[str, tuple[str, int]]


def _native(prefixes: Mapping[str, str], **names: tuple[str, int]) -> _Native:
    return MappingProxyType({vendor: (prefixes[vendor] + name, number) for vendor, (name, number) in names.items()})


# One function per table adds the common prefix of the names, so that the rows stay short.
_SEMAPHORE_PREFIX: Final = {
    "cuda": "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_",
    "cudart": "cudaExternalSemaphoreHandleType",
    "levelzero": "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_",
    "opencl": "CL_SEMAPHORE_HANDLE_",
    "opengl": "GL_HANDLE_TYPE_",
    "vulkan": "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_",
}
_MEMORY_PREFIX: Final = {
    "cuda": "CU_EXTERNAL_MEMORY_HANDLE_TYPE_",
    "cudart": "cudaExternalMemoryHandleType",
    "levelzero": "ZE_EXTERNAL_MEMORY_TYPE_FLAG_",
    "opencl": "CL_EXTERNAL_MEMORY_HANDLE_",
    "opengl": "GL_HANDLE_TYPE_",
    "vulkan": "VK_EXTERNAL_MEMORY_HANDLE_TYPE_",
}


def _semaphore(**names: tuple[str, int]) -> _Native:
    return _native(_SEMAPHORE_PREFIX, **names)


def _memory(**names: tuple[str, int]) -> _Native:
    return _native(_MEMORY_PREFIX, **names)


_SEMAPHORE_NATIVE: Final[Mapping[SemaphoreHandleType, _Native]] = {
    _S.OPAQUE_FD: _semaphore(
        cuda=("OPAQUE_FD", 1), cudart=("OpaqueFd", 1), levelzero=("OPAQUE_FD", 0x1),
        opencl=("OPAQUE_FD_KHR", 0x2055), opengl=("OPAQUE_FD_EXT", 0x9586), vulkan=("OPAQUE_FD_BIT", 0x1)),
    _S.OPAQUE_WIN32: _semaphore(
        cuda=("OPAQUE_WIN32", 2), cudart=("OpaqueWin32", 2), levelzero=("OPAQUE_WIN32", 0x2),
        opencl=("OPAQUE_WIN32_KHR", 0x2056), opengl=("OPAQUE_WIN32_EXT", 0x9587), vulkan=("OPAQUE_WIN32_BIT", 0x2)),
    _S.OPAQUE_WIN32_KMT: _semaphore(
        cuda=("OPAQUE_WIN32_KMT", 3), cudart=("OpaqueWin32Kmt", 3), levelzero=("OPAQUE_WIN32_KMT", 0x4),
        opencl=("OPAQUE_WIN32_KMT_KHR", 0x2057), opengl=("OPAQUE_WIN32_KMT_EXT", 0x9588),
        vulkan=("OPAQUE_WIN32_KMT_BIT", 0x4)),
    _S.D3D12_FENCE: _semaphore(
        cuda=("D3D12_FENCE", 4), cudart=("D3D12Fence", 4), levelzero=("D3D12_FENCE", 0x8),
        opencl=("D3D12_FENCE_KHR", 0x2059), opengl=("D3D12_FENCE_EXT", 0x9594), vulkan=("D3D12_FENCE_BIT", 0x8)),
    _S.D3D11_FENCE: _semaphore(
        cuda=("D3D11_FENCE", 5), cudart=("D3D11Fence", 5), levelzero=("D3D11_FENCE", 0x10),
        vulkan=("D3D11_FENCE_BIT", 0x8)),
    _S.NVSCISYNC: _semaphore(cuda=("NVSCISYNC", 6), cudart=("NvSciSync", 6)),
    _S.D3D11_KEYED_MUTEX: _semaphore(
        cuda=("D3D11_KEYED_MUTEX", 7), cudart=("KeyedMutex", 7), levelzero=("KEYED_MUTEX", 0x20)),
    _S.D3D11_KEYED_MUTEX_KMT: _semaphore(
        cuda=("D3D11_KEYED_MUTEX_KMT", 8), cudart=("KeyedMutexKmt", 8), levelzero=("KEYED_MUTEX_KMT", 0x40)),
    _S.TIMELINE_SEMAPHORE_FD: _semaphore(
        cuda=("TIMELINE_SEMAPHORE_FD", 9), cudart=("TimelineSemaphoreFd", 9),
        levelzero=("VK_TIMELINE_SEMAPHORE_FD", 0x80), opengl=("OPAQUE_FD_EXT", 0x9586), vulkan=("OPAQUE_FD_BIT", 0x1)),
    _S.TIMELINE_SEMAPHORE_WIN32: _semaphore(
        cuda=("TIMELINE_SEMAPHORE_WIN32", 10), cudart=("TimelineSemaphoreWin32", 10),
        levelzero=("VK_TIMELINE_SEMAPHORE_WIN32", 0x100), opengl=("OPAQUE_WIN32_EXT", 0x9587),
        vulkan=("OPAQUE_WIN32_BIT", 0x2)),
    _S.SYNC_FD: _semaphore(opencl=("SYNC_FD_KHR", 0x2058), vulkan=("SYNC_FD_BIT", 0x10)),
    _S.HOST_TIMELINE_FD: _semaphore(),
    _S.HOST_TIMELINE_WIN32: _semaphore(),
}

_MEMORY_NATIVE: Final[Mapping[MemoryHandleType, _Native]] = {
    _M.OPAQUE_FD: _memory(
        cuda=("OPAQUE_FD", 1), cudart=("OpaqueFd", 1), levelzero=("OPAQUE_FD", 0x1),
        opencl=("OPAQUE_FD_KHR", 0x2060), opengl=("OPAQUE_FD_EXT", 0x9586), vulkan=("OPAQUE_FD_BIT", 0x1)),
    _M.OPAQUE_WIN32: _memory(
        cuda=("OPAQUE_WIN32", 2), cudart=("OpaqueWin32", 2), levelzero=("OPAQUE_WIN32", 0x4),
        opencl=("OPAQUE_WIN32_KHR", 0x2061), opengl=("OPAQUE_WIN32_EXT", 0x9587), vulkan=("OPAQUE_WIN32_BIT", 0x2)),
    _M.OPAQUE_WIN32_KMT: _memory(
        cuda=("OPAQUE_WIN32_KMT", 3), cudart=("OpaqueWin32Kmt", 3), levelzero=("OPAQUE_WIN32_KMT", 0x8),
        opencl=("OPAQUE_WIN32_KMT_KHR", 0x2062), opengl=("OPAQUE_WIN32_KMT_EXT", 0x9588),
        vulkan=("OPAQUE_WIN32_KMT_BIT", 0x4)),
    _M.D3D12_HEAP: _memory(
        cuda=("D3D12_HEAP", 4), cudart=("D3D12Heap", 4), levelzero=("D3D12_HEAP", 0x40),
        opencl=("D3D12_HEAP_KHR", 0x2065), opengl=("D3D12_TILEPOOL_EXT", 0x9589), vulkan=("D3D12_HEAP_BIT", 0x20)),
    _M.D3D12_RESOURCE: _memory(
        cuda=("D3D12_RESOURCE", 5), cudart=("D3D12Resource", 5), levelzero=("D3D12_RESOURCE", 0x80),
        opencl=("D3D12_RESOURCE_KHR", 0x2066), opengl=("D3D12_RESOURCE_EXT", 0x958A),
        vulkan=("D3D12_RESOURCE_BIT", 0x40)),
    _M.D3D11_RESOURCE: _memory(
        cuda=("D3D11_RESOURCE", 6), cudart=("D3D11Resource", 6), levelzero=("D3D11_TEXTURE", 0x10),
        opencl=("D3D11_TEXTURE_KHR", 0x2063), opengl=("D3D11_IMAGE_EXT", 0x958B), vulkan=("D3D11_TEXTURE_BIT", 0x8)),
    _M.D3D11_RESOURCE_KMT: _memory(
        cuda=("D3D11_RESOURCE_KMT", 7), cudart=("D3D11ResourceKmt", 7), levelzero=("D3D11_TEXTURE_KMT", 0x20),
        opencl=("D3D11_TEXTURE_KMT_KHR", 0x2064), opengl=("D3D11_IMAGE_KMT_EXT", 0x958C),
        vulkan=("D3D11_TEXTURE_KMT_BIT", 0x10)),
    _M.NVSCIBUF: _memory(cuda=("NVSCIBUF", 8), cudart=("NvSciBuf", 8)),
    _M.DMABUF_FD: _memory(
        cuda=("DMABUF_FD", 9), levelzero=("DMA_BUF", 0x2), opencl=("DMA_BUF_KHR", 0x2067),
        vulkan=("DMA_BUF_BIT_EXT", 0x200)),
    _M.HOST_MEMORY_FD: _memory(),
    _M.HOST_MEMORY_WIN32: _memory(),
}
