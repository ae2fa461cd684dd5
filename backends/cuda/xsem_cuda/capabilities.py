"""The capabilities of a CUDA device, from the platform and the device's attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType
from xsem_cuda.images import known_flags

__all__ = ["SINCE", "THOR", "Attributes", "capabilities_of", "version_text"]

_S = SemaphoreHandleType
_M = MemoryHandleType

_TEGRA: Final = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})
THOR: Final = frozenset({(10, 1), (11, 0)})  # 10.1 until CUDA 13 renamed it
"""The compute capabilities of Tegra Thor."""

SINCE: Final[Mapping[SemaphoreHandleType | MemoryHandleType, int]] = {
    _S.D3D11_FENCE: 10020, _S.NVSCISYNC: 10020, _S.D3D11_KEYED_MUTEX: 10020, _S.D3D11_KEYED_MUTEX_KMT: 10020,
    _M.D3D11_RESOURCE: 10020, _M.D3D11_RESOURCE_KMT: 10020, _M.NVSCIBUF: 10020, _M.DMABUF_FD: 13000,
}
"""The CUDA version whose header adds the type. An older driver refuses the number of the type. The other types are in
CUDA 10.0, except the timelines: a driver before 11.2 lacks their attribute."""


class Attributes(NamedTuple):
    """Attributes of a device, the bindings and the driver that decide its capabilities."""

    timeline: bool = False
    integrated: bool = False
    tcc: bool = False
    compute_capability: tuple[int, int] = (0, 0)
    dmabuf_type: bool = False   # the bindings know the type of dma-bufs; 12.x do not
    recording: bool = False
    exports_fd: bool = False
    exports_dmabuf: bool = False   # the attribute, then the answer of `exports_dmabuf`
    formats: frozenset[str] = frozenset()
    driver_version: int = 13000   # 10010 is CUDA 10.1
    connections: int = 8   # hardware queues
    registers: bool = False   # takes memory of the host into use
    words: bool = False   # streams wait for and write 64-bit words


def version_text(version: int) -> str:
    """Return a version of cuDriverGetVersion as text, for example "13.0"."""
    return f"{version // 1000}.{version % 1000 // 10}"


def capabilities_of(platform: str, attributes: Attributes) -> Capabilities:
    """Return the declared capabilities."""
    semaphores: set[SemaphoreHandleType] = set()
    memories: set[MemoryHandleType] = set()
    exported: set[MemoryHandleType] = set()
    own: set[SemaphoreHandleType] = set()
    early: set[SemaphoreHandleType] = set()
    if platform == "linux":
        semaphores.add(_S.OPAQUE_FD)
        memories.add(_M.OPAQUE_FD)
        if attributes.timeline:
            semaphores.add(_S.TIMELINE_SEMAPHORE_FD)
        if attributes.exports_fd:
            exported.add(_M.OPAQUE_FD)
            if attributes.exports_dmabuf:
                exported.add(_M.DMABUF_FD)
        if attributes.registers and attributes.words:
            own.add(_S.HOST_TIMELINE_FD)
        semaphores |= own
        early |= semaphores  # measured on Linux only, so Windows declares none
        if attributes.integrated and attributes.compute_capability in _TEGRA:
            semaphores.add(_S.NVSCISYNC)
            memories.add(_M.NVSCIBUF)
            if attributes.compute_capability in THOR and attributes.dmabuf_type:
                memories.add(_M.DMABUF_FD)
    elif platform == "win32":
        semaphores |= {_S.OPAQUE_WIN32, _S.OPAQUE_WIN32_KMT}
        memories |= {_M.OPAQUE_WIN32, _M.OPAQUE_WIN32_KMT}
        if attributes.timeline:
            semaphores.add(_S.TIMELINE_SEMAPHORE_WIN32)
        if not attributes.tcc:  # no Direct3D on a device without a display driver
            semaphores |= {_S.D3D12_FENCE, _S.D3D11_FENCE, _S.D3D11_KEYED_MUTEX, _S.D3D11_KEYED_MUTEX_KMT}
            memories |= {_M.D3D12_HEAP, _M.D3D12_RESOURCE, _M.D3D11_RESOURCE, _M.D3D11_RESOURCE_KMT}
    features = {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT, Feature.MIPMAPPED_ARRAY, Feature.IMAGE_COPY}
    if exported:
        features |= {Feature.MEMORY_SHARING, Feature.MEMORY_CHUNKS}
    if platform == "linux" and attributes.registers:   # not measured on Windows, as the timelines
        memories.add(_M.HOST_MEMORY_FD)
        exported.add(_M.HOST_MEMORY_FD)
    if attributes.recording:
        features.add(Feature.RECORDING)
    version = attributes.driver_version
    return Capabilities(
        semaphore_import=frozenset(each for each in semaphores if SINCE.get(each, 0) <= version),
        semaphore_export=frozenset(own),
        memory_import=frozenset(each for each in memories if SINCE.get(each, 0) <= version),
        memory_export=frozenset(exported),
        features=frozenset(features),
        wait_before_signal=frozenset(early),
        resets_on_wait=True,
        append_never_blocks=False,
        release_never_blocks=False,
        independent_lists=attributes.connections,
        # Measured on an H200: 1,020 appends behind an unmet wait returned at once; the next one blocked.
        max_pending=1020,
        max_value_difference=2**64 - 1,
        image_formats=attributes.formats,
        image_flags=known_flags(version),
    )
