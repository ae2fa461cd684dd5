"""Likely causes of the driver's codes: by call and code, by the type of an import, by the kind of a semaphore."""

# The causes follow from the references of the calls, and from runs on an H200 (driver 580.159.04): the wait of a
# destroyed semaphore is INVALID_VALUE, a block-compressed image with surface_load_store NOT_SUPPORTED, and a copy
# outside of an image's memory LAUNCH_FAILED.

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from xsem.types import MemoryHandleType, OsHandleKind, SemaphoreHandleType, SemaphoreKind
from xsem_cuda import codes

__all__ = ["SIGNAL", "WAIT", "causes_of", "causes_of_kinds", "causes_of_type"]

SIGNAL: Final = "cuSignalExternalSemaphoresAsync"
WAIT: Final = "cuWaitExternalSemaphoresAsync"
_IMPORT_SEMAPHORE: Final = "cuImportExternalSemaphore"
_IMPORT_MEMORY: Final = "cuImportExternalMemory"
_MAP: Final = "cuExternalMemoryGetMappedBuffer"
_MAP_IMAGE: Final = "cuExternalMemoryGetMappedMipmappedArray"
_NVSCISYNC: Final = "cuDeviceGetNvSciSyncAttributes"
_WORDS: Final = "cuStreamBatchMemOp"
_REGISTER: Final = "cuMemHostRegister"

_LIMIT: Final = ("the process has reached its limit of handles",) if sys.platform == "win32" else (
    "the process has reached its limit of open files (ulimit -n)", "the user has no permission on /dev/nvidia*")
_RESET: Final = "the application or a library ended the device's context (cudaDeviceReset, cuCtxDestroy)"
_KERNEL: Final = ("a kernel read or wrote outside its arrays, or memory that was freed or unmapped while it ran: "
                  "compute-sanitizer finds it")
_STREAM: Final = "the application destroyed the borrowed stream"
_OTHER_RELEASE: Final = "the exporter runs on another driver release"
_LESS: Final = "a virtual GPU, WSL, or a compatibility package of the driver can do less than the GPU"
_GONE: Final = "the semaphore is gone: its context was ended (cudaDeviceReset), or other code destroyed its handle"
_BEYOND: Final = "the range ends beyond the imported memory: import it with the size of the exporter's allocation"
_NO_SUCH_IMAGE: Final = ("the driver has no image with this format and these flags: a block-compressed format takes no "
                         "surface_load_store")
_EARLIER: Final = ("a kernel or a copy that was enqueued earlier failed: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1, "
                   "shows which")

_BY_CALL: Final[Mapping[tuple[str, int], tuple[str, ...]]] = {
    (_IMPORT_SEMAPHORE, codes.INVALID_VALUE): (
        "the number is not that of an open handle, or the driver is older than the handle type",),
    (_IMPORT_MEMORY, codes.INVALID_VALUE): (
        "allocation_size differs from the exporter's", "dedicated differs from the allocation's"),
    (_MAP, codes.INVALID_VALUE): (_BEYOND,),
    (_MAP_IMAGE, codes.INVALID_VALUE): ("extent, format, flags or levels differ from the exporter's image",
                                        "the image is dedicated and the memory was imported without dedicated=True"),
    (_MAP_IMAGE, codes.NOT_SUPPORTED): (_NO_SUCH_IMAGE,),
    (SIGNAL, codes.INVALID_VALUE): (_GONE,), (WAIT, codes.INVALID_VALUE): (_GONE,),
    (SIGNAL, codes.INVALID_HANDLE): (_STREAM, _GONE), (WAIT, codes.INVALID_HANDLE): (_STREAM, _GONE),
    (_MAP, codes.INVALID_HANDLE): ("the imported memory is gone with its context: " + _RESET,),
    (_MAP_IMAGE, codes.INVALID_HANDLE): ("the imported memory is gone with its context: " + _RESET,),
    (_NVSCISYNC, codes.INVALID_HANDLE): ("the address is not that of an NvSciSyncAttrList, or NvSci has freed it",),
    (_NVSCISYNC, codes.NOT_SUPPORTED): ("NvSciSync exists only on Tegra",),
    (_NVSCISYNC, codes.INVALID_VALUE): ("a required permission is already set in the attribute list",),
    (_WORDS, codes.INVALID_VALUE): (
        "the page is no longer registered: its context was ended (cudaDeviceReset), or other code unregistered it",),
    (_WORDS, codes.INVALID_HANDLE): (_STREAM,),
    (_WORDS, codes.NOT_SUPPORTED): (_LESS,),
    (_REGISTER, codes.ALREADY_REGISTERED): ("the application registered the same addresses",),
    (_REGISTER, codes.OUT_OF_MEMORY): (
        "the host has too little memory to lock it", "the process may lock no more memory (ulimit -l)"),
    (_REGISTER, codes.NOT_SUPPORTED): (_LESS,),
    ("cuMemcpyAsync", codes.INVALID_VALUE): (
        "one side was freed, or belongs to another context", "the copy ends beyond its memory"),
    ("cuMemHostAlloc", codes.OUT_OF_MEMORY): (
        "the process or its container may lock no more memory of the host (ulimit -l)",),
    ("cuMemImportFromShareableHandle", codes.UNKNOWN): ("a handle is not memory that CUDA exported on this device",),
    ("cuMemCreate", codes.NOT_SUPPORTED): ("the device makes no allocation that it can export as this type",),
}
_BY_CODE: Final[Mapping[int, tuple[str, ...]]] = {
    codes.INVALID_VALUE: (
        "the driver is older than this use of the call",
        "an object of the application (stream, event, array) was freed or belongs to another context"),
    codes.OUT_OF_MEMORY: ("other processes use the memory of the GPU (nvidia-smi lists them)",
                          "released objects wait for unmet waits (device.releasing() names them)"),
    codes.NOT_INITIALIZED: ("the process was forked after CUDA was started",),
    codes.DEINITIALIZED: (
        "the call came at the exit of the process, from an exit handler or from a thread that still ran",),
    codes.INVALID_DEVICE: ("the device was removed, or CUDA_VISIBLE_DEVICES hides it",),
    codes.INVALID_CONTEXT: (_RESET, "the context of native= was destroyed before the device was released"),
    codes.OPERATING_SYSTEM: _LIMIT,
    codes.INVALID_HANDLE: (_RESET, "the application destroyed an object that it lent to xsem (stream, event)"),
    codes.NOT_SUPPORTED: (_LESS,),
    codes.DEVICE_UNAVAILABLE: (
        "another process has the device in exclusive mode (nvidia-smi -q -d COMPUTE)", "the device was reset"),
    214: ("the GPU's memory has an error that ECC cannot correct: nvidia-smi -q -d ECC",),
    220: ("an NVLink connection failed: nvidia-smi nvlink -e",),
    226: ("a hardware error ended this process alone: nvidia-smi -q, dmesg (Xid)",),
    700: (_KERNEL,),
    702: ("a kernel ran longer than the time limit of a GPU with a display",),
    codes.CONTEXT_IS_DESTROYED: (_RESET,),
    710: ("an assert in a kernel failed; its text is on the output of the process",),
    **dict.fromkeys((714, 715, 716, 717, 718), (
        "a kernel jumped or accessed memory in a way that the GPU does not permit: compute-sanitizer finds it",)),
    719: (_KERNEL, "a copy of an image used memory outside of it"),
    721: ("a kernel did not free its tensor memory",),
    codes.UNKNOWN: (_EARLIER,),
}


def causes_of(call: str, code: int) -> tuple[str, ...]:
    """Return the likely causes of a code that this call returned."""
    return _BY_CALL.get((call, code), _BY_CODE.get(code, ()))


def causes_of_type(type: SemaphoreHandleType | MemoryHandleType, code: int) -> tuple[str, ...]:
    """Return the likely causes of a refused import of this handle type."""
    what = "a semaphore" if isinstance(type, SemaphoreHandleType) else "memory"
    if code == codes.NOT_SUPPORTED:
        return f"the driver has no {type.value} on this platform or in this mode of the device", _LESS
    if type.os_handle_kind is OsHandleKind.NVSCI:
        return (f"the address is not that of an NvSci object for {what}, or NvSci has freed it",
                "its attributes were made without this device (Device.nvscisync_attributes)")
    if type.value.startswith("d3d"):
        return (f"the handle or the name is not {what} that Direct3D shares as {type.value}",
                "Direct3D uses another adapter: pass its LUID as device_luid=")
    return (f"the handle is not {what} that was exported on this device as {type.value}", _OTHER_RELEASE)


def causes_of_kinds(call: str, code: int, kinds: Iterable[SemaphoreKind]) -> tuple[str, ...]:
    """Return the likely causes of a refused signal or wait of semaphores of these kinds."""
    found, use = set(kinds), "SIGNAL" if call == SIGNAL else "WAIT"
    causes: list[str] = []
    if SemaphoreKind.NVSCISYNC in found and code == codes.NOT_SUPPORTED:
        causes.append(f"the NvSciSync attributes were made without CUDA_NVSCISYNC_ATTR_{use}: call "
                      f"nvscisync_attributes with {use.lower()}=True before the object is made")
    if SemaphoreKind.NVSCISYNC in found and code == codes.INVALID_VALUE:
        causes.append("NvSciSync: the fence belongs to another NvSciSyncObj, or no signal has written it")
    if SemaphoreKind.KEYED_MUTEX in found and code in (codes.INVALID_VALUE, codes.INVALID_HANDLE):
        causes.append("this device has not acquired the keyed mutex, or its Direct3D resource is gone")
    return (*causes, *causes_of(call, code))
