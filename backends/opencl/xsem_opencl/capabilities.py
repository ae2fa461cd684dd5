"""The capabilities of a device: the driver's answers for each handle type, and measurements on that driver."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from xsem.errors import XsemError
from xsem.types import Capabilities, Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem_opencl import cl
from xsem_opencl.loader import Api
from xsem_opencl.nvidia import FULL, MAX_PENDING, NVIDIA, connections, sentence, setting

__all__ = ["Answers", "ask", "capabilities_of", "is_measured", "timeout_causes", "undeclared_causes"]

_NVIDIA_PLATFORM: Final = "NVIDIA CUDA"
_CARRIERS: Final = {"linux": frozenset({OsHandleKind.FD}), "win32": frozenset({OsHandleKind.NT, OsHandleKind.KMT})}


class Answers(NamedTuple):
    """The driver's answers for one device."""

    vendor: int = 0   # CL_DEVICE_VENDOR_ID
    # OpenCL's numbers of handle types; empty if the driver does not support the query
    semaphore_import: tuple[int, ...] = ()
    semaphore_export: tuple[int, ...] = ()
    memory_import: tuple[int, ...] = ()
    images: bool = False   # whether the driver creates images in imported memory
    connections: int = FULL   # hardware queues of NVIDIA's driver
    holds: bool = True   # an append behind a user event may hold its caller


def ask(api: Api, device: int) -> Answers:
    """Query the driver."""
    # The names of the extensions are not sufficient: cl_khr_external_semaphore does not specify the handle types, and
    # NVIDIA's driver has the extension and exports no type (measured).
    semaphores = api.has(*cl.SEMAPHORE_FUNCTIONS)
    memory = api.has(*cl.MEMORY_FUNCTIONS)
    # KHR defines only binary semaphores, and NVIDIA's driver reports no list of semaphore types (measured).
    types = _list(api, device, cl.DEVICE_SEMAPHORE_TYPES)
    binary = not types or cl.SEMAPHORE_TYPE_BINARY in types
    exports = semaphores and api.has("clGetSemaphoreHandleForTypeKHR")
    return Answers(
        vendor=api.number("clGetDeviceInfo", device, cl.DEVICE_VENDOR_ID),
        semaphore_import=_list(api, device, cl.DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES) if semaphores and binary else (),
        semaphore_export=_list(api, device, cl.DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES) if exports and binary else (),
        memory_import=_list(api, device, cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES) if memory else (),
        images=_images(api, device),
        connections=connections(setting()),
        # Measured on an H200 (580.159.04): behind a user event, clEnqueueSignalSemaphoresKHR and
        # clEnqueueAcquireExternalMemObjectsKHR returned when the event was set, also with a barrier between them.
        holds=api.text("clGetPlatformInfo", api.platform, cl.PLATFORM_NAME) == _NVIDIA_PLATFORM,
    )


def _images(api: Api, device: int) -> bool:
    """Tell whether images can be imported."""
    # The query returns handle types for buffers. A driver that answers it is assumed to support imported images.
    try:
        api.info("clGetDeviceInfo", device, cl.DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES)
    except XsemError:
        return False
    return api.has(cl.CREATE_IMAGE) and bool(api.number("clGetDeviceInfo", device, cl.DEVICE_IMAGE_SUPPORT))


def _list(api: Api, device: int, key: int) -> tuple[int, ...]:
    try:
        return tuple(api.numbers("clGetDeviceInfo", device, key, 4))
    except XsemError:
        return ()  # CL_INVALID_VALUE: the driver does not support the query (PoCL)


def capabilities_of(answers: Answers, platform: str = sys.platform) -> Capabilities:
    """Return the capabilities for a value of ``sys.platform``."""
    imports = _semaphores(answers.semaphore_import, platform)
    memories = frozenset(
        each for each in MemoryHandleType
        if _number(each) in answers.memory_import and each.os_handle_kind in _CARRIERS.get(platform, ()))
    # Exports are fds: exports of NT handles have not been observed on any driver.
    exports = _semaphores(answers.semaphore_export, platform) if platform == "linux" else frozenset()
    features = {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT}
    if answers.images and any(each.os_handle_kind is OsHandleKind.FD for each in memories):
        features |= {Feature.IMAGE, Feature.IMAGE_COPY}
    measured = is_measured(answers, platform)
    portable = platform == "linux" and not answers.holds
    bridged = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD} if portable else ())
    of_host = frozenset({MemoryHandleType.HOST_MEMORY_FD} if portable else ())
    return Capabilities(
        semaphore_import=imports | bridged,
        semaphore_export=exports | bridged,
        memory_import=memories | of_host,
        memory_export=of_host,
        bridged=bridged,
        features=frozenset(features),
        # The extension does not define a wait before the submission of its signal. On NVIDIA's driver the wait stays
        # pending and the signal completes it (measured on an H200).
        wait_before_signal=(imports & {SemaphoreHandleType.OPAQUE_FD} if measured else frozenset()) | bridged,
        resets_on_wait=True,  # the extension defines this for binary semaphores, the only kind of KHR
        append_never_blocks=False,
        release_never_blocks=False,
        needs_handover=bool(memories | of_host),
        # No query exists for either value.
        independent_lists=answers.connections if measured else 1,
        max_pending=MAX_PENDING if measured else None,
        max_value_difference=2**64 - 1,
    )


def is_measured(answers: Answers, platform: str = sys.platform) -> bool:
    """Return whether the driver is the measured one, NVIDIA's on Linux."""
    return answers.vendor == NVIDIA and platform == "linux"


def timeout_causes(answers: Answers) -> tuple[str, ...]:
    """Return the causes for `DeviceDriver.timeout_causes`."""
    # The default number of queues is not a likely cause.
    few = is_measured(answers) and answers.connections < FULL
    return (f"the driver's number of hardware queues is {sentence()}",) if few else ()


def undeclared_causes(answers: Answers, platform: str = sys.platform) -> dict[str, Sequence[str]]:
    """Return `DeviceDriver.undeclared_causes`."""
    if platform != "linux":
        causes = ["xsem has not tried objects of the host through OpenCL on this system"]
    elif answers.holds:
        causes = [("NVIDIA's driver holds the thread that appends a signal behind a user event, with which xsem would "
                   "wait for the host; use cuda: on the same GPU")]
    else:
        return {}
    names = (f"semaphore.{{}}.{SemaphoreHandleType.HOST_TIMELINE_FD.value}",
             f"memory.{{}}.{MemoryHandleType.HOST_MEMORY_FD.value}")
    return {name.format(direction): causes for name in names for direction in ("import", "export")}


def _semaphores(numbers: tuple[int, ...], platform: str) -> frozenset[SemaphoreHandleType]:
    return frozenset(each for each in SemaphoreHandleType
                     if _number(each) in numbers and each.os_handle_kind in _CARRIERS.get(platform, ()))


def _number(type: SemaphoreHandleType | MemoryHandleType) -> int | None:
    return type.native["opencl"][1] if "opencl" in type.native else None
