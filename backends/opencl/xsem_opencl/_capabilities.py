"""What a device declares: what its driver answers for each handle type, and what was measured on that driver."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from xsem.errors import XsemError
from xsem.types import Capabilities, Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem_opencl import _cl as cl
from xsem_opencl._api import Api

__all__ = ["NVIDIA", "Answers", "ask", "capabilities_of"]

NVIDIA: Final = 0x10DE

_CARRIERS: Final = {"linux": frozenset({OsHandleKind.FD}), "win32": frozenset({OsHandleKind.NT, OsHandleKind.KMT})}


class Answers(NamedTuple):
    """What the driver says of one device.

    Attributes
    ----------
    vendor : int
        CL_DEVICE_VENDOR_ID.
    semaphore_import, semaphore_export, memory_import : tuple of int
        OpenCL's numbers of handle types; empty where the driver does not know the question.
    images : bool
        It makes images of imported memory.
    """

    vendor: int = 0
    semaphore_import: tuple[int, ...] = ()
    semaphore_export: tuple[int, ...] = ()
    memory_import: tuple[int, ...] = ()
    images: bool = False


def ask(api: Api, device: int) -> Answers:
    """Ask the driver.

    The names of the extensions are not asked: cl_khr_external_semaphore says nothing of which types there are, and
    NVIDIA's driver has it and exports nothing (measured).
    """
    semaphores = api.has(*cl.SEMAPHORE_FUNCTIONS)
    memory = api.has(*cl.MEMORY_FUNCTIONS)
    # KHR has binary semaphores alone, and NVIDIA's driver gives no list of them (measured).
    types = _list(api, device, cl.DEVICE_SEMAPHORE_TYPES)
    binary = not types or cl.SEMAPHORE_TYPE_BINARY in types
    exports = semaphores and api.has("clGetSemaphoreHandleForTypeKHR")
    return Answers(
        vendor=api.number("clGetDeviceInfo", device, cl.DEVICE_VENDOR_ID),
        semaphore_import=_list(api, device, cl.DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES) if semaphores and binary else (),
        semaphore_export=_list(api, device, cl.DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES) if exports and binary else (),
        memory_import=_list(api, device, cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES) if memory else (),
        images=_images(api, device),
    )


def _images(api: Api, device: int) -> bool:
    """Whether images are imported. The types are those of buffers; a driver that has thought of images knows how."""
    try:
        api.info("clGetDeviceInfo", device, cl.DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES)
    except XsemError:
        return False
    return api.has(cl.CREATE_IMAGE) and bool(api.number("clGetDeviceInfo", device, cl.DEVICE_IMAGE_SUPPORT))


def _list(api: Api, device: int, key: int) -> tuple[int, ...]:
    try:
        return tuple(api.numbers("clGetDeviceInfo", device, key, 4))
    except XsemError:
        return ()  # CL_INVALID_VALUE: no such question (PoCL)


def capabilities_of(answers: Answers, platform: str = sys.platform) -> Capabilities:
    """The declaration, for ``sys.platform``."""
    imports = _semaphores(answers.semaphore_import, platform)
    memories = frozenset(
        each for each in MemoryHandleType
        if _number(each) in answers.memory_import and each.os_handle_kind in _CARRIERS.get(platform, ()))
    # What is exported is an fd here: nobody has seen a driver that exports an NT handle.
    exports = _semaphores(answers.semaphore_export, platform) if platform == "linux" else frozenset()
    features = {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT}
    if answers.images and any(each.os_handle_kind is OsHandleKind.FD for each in memories):
        features.add(Feature.IMAGE)
    measured = answers.vendor == NVIDIA and platform == "linux"
    return Capabilities(
        semaphore_import=imports,
        semaphore_export=exports,
        memory_import=memories,
        features=frozenset(features),
        # The extension leaves open what a wait does before its signal is submitted. On NVIDIA's driver it stays
        # pending and is met by it (measured on an H200).
        wait_before_signal=imports & {SemaphoreHandleType.OPAQUE_FD} if measured else frozenset(),
        resets_on_wait=True,  # the extension says so of binary semaphores, and KHR has no others
        append_never_blocks=False,
        release_never_blocks=False,
        needs_handover=bool(memories),
        # Nothing asks for either. In a process with little else, while 31 queues waited another one went on; beside a
        # second context it did not, so it is as many as of CUDA's streams. Behind an unmet wait 1,020 fills or signals
        # returned at once and the next held its thread, barriers never (measured on an H200).
        independent_lists=8 if measured else 1,
        max_pending=1020 if measured else None,
        max_value_difference=2**64 - 1,
    )


def _semaphores(numbers: tuple[int, ...], platform: str) -> frozenset[SemaphoreHandleType]:
    return frozenset(each for each in SemaphoreHandleType
                     if _number(each) in numbers and each.os_handle_kind in _CARRIERS.get(platform, ()))


def _number(type: SemaphoreHandleType | MemoryHandleType) -> int | None:
    return type.native["opencl"][1] if "opencl" in type.native else None
