"""The capabilities of a device, from the platform, the probe, and known flaws of the driver's release."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType
from xsem_levelzero.images import FLAGS, FORMATS
from xsem_levelzero.probe import Behaviour

__all__ = ["WIN32_SEMAPHORES", "capabilities_of", "memory_types"]

_S = SemaphoreHandleType

# Every release of Intel's driver refuses the other types of the specification: KMT handles and keyed mutexes.
WIN32_SEMAPHORES: Final = frozenset({
    _S.OPAQUE_WIN32, _S.D3D12_FENCE, _S.D3D11_FENCE, _S.TIMELINE_SEMAPHORE_WIN32,
})
_FD_MEMORIES: Final = frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD})


def memory_types(platform: str, flags: int) -> frozenset[MemoryHandleType]:
    """The handle types of this platform for the flags of ze_device_external_memory_properties_t."""
    return frozenset(
        each for each in MemoryHandleType
        if "levelzero" in each.native and flags & each.native["levelzero"][1]
        and (each in _FD_MEMORIES) == (platform == "linux") and platform in ("linux", "win32")
    )


def capabilities_of(
    semaphores: frozenset[SemaphoreHandleType], memories: frozenset[MemoryHandleType], behaviour: Behaviour, *,
    exported: frozenset[MemoryHandleType], lists: int, images: bool, never_blocks: bool, platform: str,
    host_memory: bool,
) -> Capabilities:
    """Return the capabilities. `semaphores` and `memories` can be imported, `lists` queues serve own lists."""
    # `host_memory`: the driver takes pages of the host. On Windows, objects of the host have not been tried.
    bridged = frozenset({_S.HOST_TIMELINE_FD} if platform == "linux" else ())
    of_host = frozenset({MemoryHandleType.HOST_MEMORY_FD} if platform == "linux" and host_memory else ())
    features = {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT}
    if images:
        features |= {Feature.IMAGE, Feature.IMAGE_COPY}
    if exported:
        features.add(Feature.MEMORY_SHARING)
    declared = Capabilities(
        semaphore_import=semaphores | bridged,
        semaphore_export=bridged,
        memory_import=memories | of_host,
        memory_export=exported | of_host,
        bridged=bridged,
        features=frozenset(features),
        wait_before_signal=(semaphores if behaviour.early else frozenset()) | bridged,
        resets_on_wait=behaviour.resets,
        append_never_blocks=never_blocks,  # rule 4
        release_never_blocks=never_blocks,  # the header asks for lock-free implementations
        independent_lists=lists,
        max_value_difference=2**64 - 1,
    )
    return replace(declared, image_formats=FORMATS, image_flags=FLAGS) if images else declared
