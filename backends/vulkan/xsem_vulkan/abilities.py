"""What a device can do, asked of its driver: nothing is taken from the name of an extension alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from xsem.errors import UnsupportedError
from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType, SemaphoreKind
from xsem_vulkan import constants as vk
from xsem_vulkan.formats import can_map_images
from xsem_vulkan.instance import Family, MemoryTypes, PhysicalDevice
from xsem_vulkan.nodes import opaque_node

__all__ = ["BUFFER_USAGE", "MEMORIES", "SEMAPHORES", "Abilities", "ask", "restricted"]

BUFFER_USAGE: Final = (vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
                       | vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)
"""What buffers on external memory are made for: copies, fills, and shaders of the application's own."""

# The device extensions that have the functions and structs for a handle type. A timeline travels in an opaque fd, too.
SEMAPHORES: Final[Mapping[SemaphoreHandleType, tuple[str, ...]]] = dict.fromkeys(
    (SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.SYNC_FD),
    ("VK_KHR_external_semaphore_fd",))
MEMORIES: Final[Mapping[MemoryHandleType, tuple[str, ...]]] = {
    MemoryHandleType.OPAQUE_FD: ("VK_KHR_external_memory_fd",),
    MemoryHandleType.DMABUF_FD: ("VK_KHR_external_memory_fd", "VK_EXT_external_memory_dma_buf"),
}

# Each queue of NVIDIA's driver is a channel of the GPU's; 16 are offered, but while 8 wait a ninth stands still.
_MANY_QUEUES: Final = 8

_Type = TypeVar("_Type", SemaphoreHandleType, MemoryHandleType)


_OF_TIMELINES: Final = frozenset({Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE})


@dataclass(frozen=True)
class Abilities:
    """What was found out about a device before it was opened.

    Attributes
    ----------
    extensions : frozenset of str
        Device extensions to be enabled.
    family, queues : Family, int
        The queue family to be used, and how many of its queues.
    dedicated_only : frozenset of MemoryHandleType
        Types whose memory is always a dedicated allocation.
    images : bool
        Whether images can be mapped onto imported memory.
    largest_allocation : int
        Bytes.
    node : int or None
        Number of the device file that every opaque fd of this driver is open on, where that is known.
    """

    extensions: frozenset[str]
    family: Family
    queues: int
    memory_types: MemoryTypes
    semaphore_import: frozenset[SemaphoreHandleType]
    semaphore_export: frozenset[SemaphoreHandleType]
    memory_import: frozenset[MemoryHandleType]
    memory_export: frozenset[MemoryHandleType]
    dedicated_only: frozenset[MemoryHandleType]
    images: bool
    largest_allocation: int
    largest_value_difference: int
    node: int | None

    @property
    def lists(self) -> int:
        """How many lists have a queue to themselves, one of the queues being for the list of blocking copies."""
        return max(1, self.queues - 1)

    @property
    def capabilities(self) -> Capabilities:
        """As xsem declares them."""
        timelines = frozenset(each for each in self.semaphore_import | self.semaphore_export
                              if each.kind is SemaphoreKind.TIMELINE)
        return Capabilities(
            semaphore_import=self.semaphore_import,
            semaphore_export=self.semaphore_export,
            memory_import=self.memory_import,
            memory_export=self.memory_export,
            # Vulkan's host signals, waits for and reads timelines alone.
            features=frozenset({Feature.NATIVE_CONTEXT}) | (_OF_TIMELINES if timelines else frozenset())
            | (frozenset({Feature.MIPMAPPED_ARRAY}) if self.images and self.memory_import else frozenset()),
            # A binary semaphore's signal must have been submitted before its wait is (VUID-vkQueueSubmit-
            # pWaitSemaphores-03238), though drivers take it the other way round.
            wait_before_signal=timelines,
            resets_on_wait=True,
            needs_handover=True,
            independent_lists=self.lists,
            max_value_difference=self.largest_value_difference,
        )


def ask(physical: PhysicalDevice) -> Abilities:
    """Ask a device all that xsem wants to know.

    Raises
    ------
    UnsupportedError
        ``driver_too_old``: the driver is older than Vulkan 1.2, or lacks timeline semaphores; ``unsupported``: there is
        no queue for copies.
    """
    if physical.version < vk.VK_API_VERSION_1_2:
        raise UnsupportedError(f"{physical.name}: the driver is older than Vulkan 1.2; install a newer one",
                               reason="driver_too_old", capability="vulkan_1_2", backend="vulkan")
    if not physical.has_timelines():
        raise UnsupportedError(f"{physical.name}: the driver has no timeline semaphores", reason="driver_too_old",
                               capability="timelineSemaphore", backend="vulkan")
    offered = physical.extensions()
    family = _family(physical)
    semaphores = {each: _semaphore_features(physical, each, offered) for each in SEMAPHORES}
    memories = {each: _memory_features(physical, each, offered) for each in MEMORIES}
    extensions = [*_of(SEMAPHORES, semaphores), *_of(MEMORIES, memories)]
    dedicated_only = _with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT)
    return Abilities(
        extensions=frozenset(extensions),
        family=family, queues=min(family.queues, _MANY_QUEUES), memory_types=physical.memory_types(),
        semaphore_import=_with(semaphores, vk.VK_EXTERNAL_SEMAPHORE_FEATURE_IMPORTABLE_BIT),
        semaphore_export=_with(semaphores, vk.VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT),
        memory_import=_with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT),
        # No descriptor says of a dma-buf that it is dedicated.
        memory_export=_with(memories, vk.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT)
        - (dedicated_only & {MemoryHandleType.DMABUF_FD}),
        dedicated_only=dedicated_only,
        images=can_map_images(physical, [each.native["vulkan"][1] for each in MEMORIES
                                         if memories[each] & vk.VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT
                                         and each is not MemoryHandleType.DMABUF_FD]),
        largest_allocation=physical.largest_allocation(),
        largest_value_difference=physical.largest_value_difference(),
        node=opaque_node(physical.driver_id()),
    )


def restricted(abilities: Abilities, enabled: frozenset[str]) -> Abilities:
    """What is left with no more than these device extensions."""
    semaphores = frozenset(each for each in SEMAPHORES if enabled.issuperset(SEMAPHORES[each]))
    memories = frozenset(each for each in MEMORIES if enabled.issuperset(MEMORIES[each]))
    return replace(
        abilities, extensions=abilities.extensions & enabled,
        semaphore_import=abilities.semaphore_import & semaphores,
        semaphore_export=abilities.semaphore_export & semaphores,
        memory_import=abilities.memory_import & memories, memory_export=abilities.memory_export & memories,
    )


def _with(features: Mapping[_Type, int], bit: int) -> frozenset[_Type]:
    return frozenset(each for each, found in features.items() if found & bit)


def _of(extensions: Mapping[_Type, Sequence[str]], features: Mapping[_Type, int]) -> list[str]:
    return [name for each, found in features.items() if found for name in extensions[each]]


def _offered(extensions: Sequence[str], offered: frozenset[str]) -> bool:
    return sys.platform != "win32" and offered.issuperset(extensions)


def _semaphore_features(physical: PhysicalDevice, type: SemaphoreHandleType, offered: frozenset[str]) -> int:
    # SwiftShader has the extension and no features for timelines, and exporting one there is a segmentation fault.
    if not _offered(SEMAPHORES[type], offered):
        return 0
    return physical.semaphore_features(type.native["vulkan"][1], timeline=type.kind is SemaphoreKind.TIMELINE)


def _memory_features(physical: PhysicalDevice, type: MemoryHandleType, offered: frozenset[str]) -> int:
    if not _offered(MEMORIES[type], offered):
        return 0
    return physical.buffer_features(type.native["vulkan"][1], BUFFER_USAGE)


def _family(physical: PhysicalDevice) -> Family:
    """The family with the most queues among those that do more than copies: graphics and compute imply them."""
    able = vk.VK_QUEUE_GRAPHICS_BIT | vk.VK_QUEUE_COMPUTE_BIT
    fitting = [each for each in physical.families() if each.flags & able and each.queues]
    if not fitting:
        raise UnsupportedError(f"{physical.name} has no queue for compute or graphics", capability="queue",
                               backend="vulkan")
    return max(fitting, key=lambda each: min(each.queues, _MANY_QUEUES))
