"""The answers of a driver about its device: the name of an extension is not sufficient."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from xsem.errors import UnsupportedError
from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType, SemaphoreKind
from xsem_vulkan import constants as vk
from xsem_vulkan.formats import drm_modifiers, image_flags, image_formats
from xsem_vulkan.instance import Family, MemoryTypes, PhysicalDevice
from xsem_vulkan.nodes import opaque_node

__all__ = ["BUFFER_USAGE", "MEMORIES", "MODIFIERS", "OF_HOST", "SEMAPHORES", "Answers", "ask", "restricted"]

# Of buffers on external memory: copies, fills, and the application's own shaders
BUFFER_USAGE: Final = (vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
                       | vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)

# The device extensions with the functions and structs for a handle type. Timelines use opaque fds, too.
SEMAPHORES: Final[Mapping[SemaphoreHandleType, tuple[str, ...]]] = dict.fromkeys(
    (SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.SYNC_FD),
    ("VK_KHR_external_semaphore_fd",))
MEMORIES: Final[Mapping[MemoryHandleType, tuple[str, ...]]] = {
    MemoryHandleType.OPAQUE_FD: ("VK_KHR_external_memory_fd",),
    MemoryHandleType.DMABUF_FD: ("VK_KHR_external_memory_fd", "VK_EXT_external_memory_dma_buf"),
}

# The device extension for images in dma-bufs
MODIFIERS: Final = "VK_EXT_image_drm_format_modifier"

# The device extension for memory of the host
OF_HOST: Final = "VK_EXT_external_memory_host"
_SWIFTSHADER: Final = 10   # VK_DRIVER_ID_GOOGLE_SWIFTSHADER
_PORTABLE: Final = sys.platform != "win32"   # not tried on Windows

# Each queue of NVIDIA's driver is a channel of the GPU. The driver offers 16 queues, but while 8 wait, a ninth does not
# progress.
_MANY_QUEUES: Final = 8

_Type = TypeVar("_Type", SemaphoreHandleType, MemoryHandleType)


_OF_IMAGES: Final = frozenset({Feature.MIPMAPPED_ARRAY, Feature.IMAGE_COPY})
_OF_TIMELINES: Final = frozenset({Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE})


@dataclass(frozen=True)
class Answers:
    """What a driver answers about a device, asked before the device is opened."""

    extensions: frozenset[str]   # device extensions to enable
    family: Family
    queues: int   # the number of queues of the family that xsem uses
    memory_types: MemoryTypes
    semaphore_import: frozenset[SemaphoreHandleType]
    semaphore_export: frozenset[SemaphoreHandleType]
    memory_import: frozenset[MemoryHandleType]
    memory_export: frozenset[MemoryHandleType]
    dedicated_only: frozenset[MemoryHandleType]   # types whose memory is always a dedicated allocation
    # Of the images that can be mapped onto imported memory. Without formats, the device maps no images.
    image_formats: frozenset[str]
    image_flags: frozenset[str]
    drm_modifiers: frozenset[int]   # of the dma-bufs that can be mapped as images
    host_memory: bool   # the device imports pages of the host
    largest_allocation: int   # bytes
    largest_value_difference: int
    node: int | None   # number of the device file on which every opaque fd of this driver is open; None if unknown

    @property
    def lists(self) -> int:
        """Number of lists with a queue of their own."""
        return max(1, self.queues - 1)   # one queue is reserved for the list of blocking copies

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that xsem declares."""
        timelines = frozenset(each for each in self.semaphore_import | self.semaphore_export
                              if each.kind is SemaphoreKind.TIMELINE)
        bridged = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD} if _PORTABLE else ())
        of_host = frozenset({MemoryHandleType.HOST_MEMORY_FD} if self.host_memory else ())
        return Capabilities(
            semaphore_import=self.semaphore_import | bridged,
            semaphore_export=self.semaphore_export | bridged,
            memory_import=self.memory_import | of_host,
            memory_export=self.memory_export | of_host,
            bridged=bridged,
            # Vulkan's host functions signal, wait for and read only timelines.
            features=frozenset({Feature.NATIVE_CONTEXT}) | (_OF_TIMELINES if timelines else frozenset())
            | (_OF_IMAGES if self.image_formats and self.memory_import else frozenset()),
            # A binary semaphore's signal must be submitted before its wait (VUID-vkQueueSubmit-pWaitSemaphores-03238),
            # although drivers accept the reverse order.
            wait_before_signal=timelines | bridged,
            resets_on_wait=True,
            needs_handover=True,
            independent_lists=self.lists,
            max_value_difference=self.largest_value_difference,
            image_formats=self.image_formats,
            image_flags=self.image_flags,
            drm_modifiers=self.drm_modifiers,
        )


def ask(physical: PhysicalDevice) -> Answers:
    """Ask the driver everything about a device that xsem needs."""
    if physical.version < vk.VK_API_VERSION_1_2:
        raise UnsupportedError(f"{physical.name}: the driver is older than Vulkan 1.2; install a newer one",
                               reason="driver_too_old", capability="vulkan_1_2", backend="vulkan")
    if not physical.has_timelines():
        raise UnsupportedError(f"{physical.name}: the driver lacks timeline semaphores", reason="driver_too_old",
                               capability="timelineSemaphore", backend="vulkan")
    offered = physical.extensions()
    family = _family(physical)
    semaphores = {each: _semaphore_features(physical, each, offered) for each in SEMAPHORES}
    memories = {each: _memory_features(physical, each, offered) for each in MEMORIES}
    extensions = [*_of(SEMAPHORES, semaphores), *_of(MEMORIES, memories)]
    dmabufs = memories[MemoryHandleType.DMABUF_FD] & vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT
    modifiers = drm_modifiers(physical) if dmabufs and MODIFIERS in offered else frozenset()
    extensions += [MODIFIERS] if modifiers else []
    host_memory = _PORTABLE and OF_HOST in offered and _takes_host_memory(physical)
    extensions += [OF_HOST] if host_memory else []
    imports = [each.native["vulkan"][1] for each in MEMORIES
               if memories[each] & vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT
               and each is not MemoryHandleType.DMABUF_FD]
    dedicated_only = _with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT)
    return Answers(
        extensions=frozenset(extensions),
        family=family, queues=min(family.queues, _MANY_QUEUES), memory_types=physical.memory_types(),
        semaphore_import=_with(semaphores, vk.VK_EXTERNAL_SEMAPHORE_FEATURE_IMPORTABLE_BIT),
        semaphore_export=_with(semaphores, vk.VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT),
        memory_import=_with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT),
        # A dma-buf's descriptor cannot state that the memory is dedicated.
        memory_export=_with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT)
        - (dedicated_only & {MemoryHandleType.DMABUF_FD}),
        dedicated_only=dedicated_only,
        image_formats=image_formats(physical, imports),
        # Only a queue with graphics copies depth images (VUID-vkCmdCopyBufferToImage-commandBuffer-07739).
        image_flags=image_flags(physical, imports)
        - (frozenset() if family.flags & vk.VK_QUEUE_GRAPHICS_BIT else {"depth_texture"}),
        drm_modifiers=modifiers,
        host_memory=host_memory,
        largest_allocation=physical.largest_allocation(),
        largest_value_difference=physical.largest_value_difference(),
        node=opaque_node(physical.driver_id()),
    )


def restricted(answers: Answers, enabled: frozenset[str]) -> Answers:
    """Return the answers that remain with only these device extensions."""
    semaphores = frozenset(each for each in SEMAPHORES if enabled.issuperset(SEMAPHORES[each]))
    memories = frozenset(each for each in MEMORIES if enabled.issuperset(MEMORIES[each]))
    return replace(
        answers, extensions=answers.extensions & enabled,
        semaphore_import=answers.semaphore_import & semaphores,
        semaphore_export=answers.semaphore_export & semaphores,
        drm_modifiers=answers.drm_modifiers if MODIFIERS in enabled else frozenset(),
        host_memory=answers.host_memory and OF_HOST in enabled,
        memory_import=answers.memory_import & memories, memory_export=answers.memory_export & memories,
    )


def _with(features: Mapping[_Type, int], bit: int) -> frozenset[_Type]:
    return frozenset(each for each, found in features.items() if found & bit)


def _of(extensions: Mapping[_Type, Sequence[str]], features: Mapping[_Type, int]) -> list[str]:
    return [name for each, found in features.items() if found for name in extensions[each]]


def _takes_host_memory(physical: PhysicalDevice) -> bool:
    # SwiftShader imports pages of the host, and its answer about buffers on them says that it does not (Chromium 156).
    features = physical.buffer_features(vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, BUFFER_USAGE)
    able = features & vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT or physical.driver_id() == _SWIFTSHADER
    return bool(able) and mmap.PAGESIZE % physical.host_pointer_alignment() == 0


def _offered(extensions: Sequence[str], offered: frozenset[str]) -> bool:
    return sys.platform != "win32" and offered.issuperset(extensions)


def _semaphore_features(physical: PhysicalDevice, type: SemaphoreHandleType, offered: frozenset[str]) -> int:
    # SwiftShader has the extension but supports no timelines. An export of a timeline there is a segmentation fault.
    if not _offered(SEMAPHORES[type], offered):
        return 0
    return physical.semaphore_features(type.native["vulkan"][1], timeline=type.kind is SemaphoreKind.TIMELINE)


def _memory_features(physical: PhysicalDevice, type: MemoryHandleType, offered: frozenset[str]) -> int:
    if not _offered(MEMORIES[type], offered):
        return 0
    return physical.buffer_features(type.native["vulkan"][1], BUFFER_USAGE)


def _family(physical: PhysicalDevice) -> Family:
    """Choose the family with the most queues among those with graphics or compute, which imply copies."""
    able = vk.VK_QUEUE_GRAPHICS_BIT | vk.VK_QUEUE_COMPUTE_BIT
    fitting = [each for each in physical.families() if each.flags & able and each.queues]
    if not fitting:
        raise UnsupportedError(f"{physical.name} has no queue for compute or graphics", capability="queue",
                               backend="vulkan")
    return max(fitting, key=lambda each: min(each.queues, _MANY_QUEUES))
