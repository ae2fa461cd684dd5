"""Why a Vulkan device does not declare a handle type."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_vulkan.answers import MEMORIES, OF_HOST, SEMAPHORES, Answers
from xsem_vulkan.nodes import HERE

__all__ = ["undeclared_causes"]

_FDS = ("xsem shares objects through Vulkan only as file descriptors: OPAQUE_FD, TIMELINE_SEMAPHORE_FD, SYNC_FD, "
        "DMABUF_FD")


def undeclared_causes(answers: Answers) -> Mapping[str, Sequence[str]]:
    """Return `DeviceDriver.undeclared_causes` of a device with these answers."""
    found: dict[str, Sequence[str]] = {}
    declared = answers.capabilities
    for direction, semaphores, memories in (("import", declared.semaphore_import, declared.memory_import),
                                            ("export", declared.semaphore_export, declared.memory_export)):
        for semaphore in SemaphoreHandleType:
            if semaphore not in semaphores:
                found[f"semaphore.{direction}.{semaphore.value}"] = _causes(
                    answers, SEMAPHORES.get(semaphore), "vkGetPhysicalDeviceExternalSemaphoreProperties")
        for memory in MemoryHandleType:
            if memory not in memories:
                found[f"memory.{direction}.{memory.value}"] = _causes(
                    answers, MEMORIES.get(memory), "vkGetPhysicalDeviceExternalBufferProperties")
        if direction == "import":
            found = {capability: [*causes, HERE] for capability, causes in found.items()}
    for direction in ("import", "export"):
        of_host = f"memory.{direction}.{MemoryHandleType.HOST_MEMORY_FD.value}"
        if of_host in found and sys.platform != "win32":
            found[of_host] = [(f"the driver lacks {OF_HOST}, needs a larger alignment than a page, or the application "
                               "did not enable the extension (native=)")]
    return found


def _causes(answers: Answers, extensions: Sequence[str] | None, query: str) -> list[str]:
    if sys.platform == "win32":
        return ["xsem shares no objects through Vulkan on Windows"]
    if extensions is None:
        return [_FDS]
    missing = [each for each in extensions if each not in answers.extensions]
    if missing:
        names = ", ".join(missing)
        return [f"the driver lacks {names}, or reports no use of it, or the application did not enable it (native=)"]
    return [f"the driver reports that it does not support the type in this direction ({query})"]
