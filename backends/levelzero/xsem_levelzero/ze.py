"""The part of Level Zero's C interface that xsem uses: structs, numbers, prototypes. This module calls no function.

Sizes, offsets and numbers are those of ``ze_api.h`` 1.20.6 and 1.32.0, which agree. Tests compare all of them with the
header. Most structs begin with a type number and a pointer to the next struct.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar, Final, Self

__all__ = [
    "EXTENSION",
    "EXTENSION_FUNCTIONS",
    "IS_IMMEDIATE",
    "PROTOTYPES",
    "STRUCTS",
    "Base",
]

EXTENSION: Final = "ZE_extension_external_semaphores"
SYSTEM_MEMORY: Final = "ZE_extension_external_memmap_sysmem"


class Base(ctypes.Structure):
    """The common first fields of the extensible structs."""

    STYPE: ClassVar[int]
    _fields_: ClassVar = [("stype", c_uint32), ("pNext", c_void_p)]

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """Return a struct with its type number and these fields; the other fields are zero.

        A struct given as `pNext` is linked. The new struct keeps it alive.
        """
        following = fields.pop("pNext", None)
        made = cls(stype=cls.STYPE, **fields)
        if following is not None:
            made.pNext = ctypes.addressof(following)
            made.following = following
        return made


class ExternalSemaphoreDesc(Base):
    STYPE = 0x20022
    NAME = "ze_external_semaphore_ext_desc_t"
    _fields_: ClassVar = [("flags", c_uint32)]


class ExternalSemaphoreWin32Desc(Base):
    STYPE = 0x20023
    NAME = "ze_external_semaphore_win32_ext_desc_t"
    _fields_: ClassVar = [("handle", c_void_p), ("name", c_void_p)]


class ExternalSemaphoreFdDesc(Base):
    STYPE = 0x20024
    NAME = "ze_external_semaphore_fd_ext_desc_t"
    _fields_: ClassVar = [("fd", c_int32)]


class SignalParams(Base):
    STYPE = 0x20025
    NAME = "ze_external_semaphore_signal_params_ext_t"
    _fields_: ClassVar = [("value", c_uint64)]


class WaitParams(Base):
    STYPE = 0x20026
    NAME = "ze_external_semaphore_wait_params_ext_t"
    _fields_: ClassVar = [("value", c_uint64)]


class DriverProperties(Base):
    STYPE = 0x1
    NAME = "ze_driver_properties_t"
    _fields_: ClassVar = [("uuid", c_uint8 * 16), ("driverVersion", c_uint32)]


class DeviceProperties(Base):
    STYPE = 0x3
    NAME = "ze_device_properties_t"
    _fields_: ClassVar = [
        ("type", c_uint32), ("vendorId", c_uint32), ("deviceId", c_uint32), ("flags", c_uint32),
        ("subdeviceId", c_uint32), ("coreClockRate", c_uint32), ("maxMemAllocSize", c_uint64),
        ("maxHardwareContexts", c_uint32), ("maxCommandQueuePriority", c_uint32), ("numThreadsPerEU", c_uint32),
        ("physicalEUSimdWidth", c_uint32), ("numEUsPerSubslice", c_uint32), ("numSubslicesPerSlice", c_uint32),
        ("numSlices", c_uint32), ("timerResolution", c_uint64), ("timestampValidBits", c_uint32),
        ("kernelTimestampValidBits", c_uint32), ("uuid", c_uint8 * 16), ("name", c_char * 256),
    ]


class DeviceLuid(Base):
    STYPE = 0x1000D
    NAME = "ze_device_luid_ext_properties_t"
    _fields_: ClassVar = [("luid", c_uint8 * 8), ("nodeMask", c_uint32)]


class DeviceIpVersion(Base):
    STYPE = 0x1000F
    NAME = "ze_device_ip_version_ext_t"
    _fields_: ClassVar = [("ipVersion", c_uint32)]


class DeviceExternalMemory(Base):
    STYPE = 0xC
    NAME = "ze_device_external_memory_properties_t"
    _fields_: ClassVar = [
        ("memoryAllocationImportTypes", c_uint32), ("memoryAllocationExportTypes", c_uint32),
        ("imageImportTypes", c_uint32), ("imageExportTypes", c_uint32),
    ]


class QueueGroup(Base):
    STYPE = 0x6
    NAME = "ze_command_queue_group_properties_t"
    _fields_: ClassVar = [("flags", c_uint32), ("maxMemoryFillPatternSize", c_size_t), ("numQueues", c_uint32)]


class ExportDesc(Base):
    STYPE = 0x18
    NAME = "ze_external_memory_export_desc_t"
    _fields_: ClassVar = [("flags", c_uint32)]


class ExportFd(Base):
    STYPE = 0x1A
    NAME = "ze_external_memory_export_fd_t"
    _fields_: ClassVar = [("flags", c_uint32), ("fd", c_int32)]


class MemoryAllocationProperties(Base):
    STYPE = 0x17
    NAME = "ze_memory_allocation_properties_t"
    _fields_: ClassVar = [("type", c_uint32), ("id", c_uint64), ("pageSize", c_uint64)]


class ImportFd(Base):
    STYPE = 0x19
    NAME = "ze_external_memory_import_fd_t"
    _fields_: ClassVar = [("flags", c_uint32), ("fd", c_int32)]


class ImportWin32(Base):
    STYPE = 0x22
    NAME = "ze_external_memory_import_win32_handle_t"
    _fields_: ClassVar = [("flags", c_uint32), ("handle", c_void_p), ("name", c_void_p)]


class ContextDesc(Base):
    STYPE = 0xD
    NAME = "ze_context_desc_t"
    _fields_: ClassVar = [("flags", c_uint32)]


class QueueDesc(Base):
    STYPE = 0xE
    NAME = "ze_command_queue_desc_t"
    _fields_: ClassVar = [
        ("ordinal", c_uint32), ("index", c_uint32), ("flags", c_uint32), ("mode", c_uint32), ("priority", c_uint32),
    ]


class EventPoolDesc(Base):
    STYPE = 0x10
    NAME = "ze_event_pool_desc_t"
    _fields_: ClassVar = [("flags", c_uint32), ("count", c_uint32)]


class EventDesc(Base):
    STYPE = 0x11
    NAME = "ze_event_desc_t"
    _fields_: ClassVar = [("index", c_uint32), ("signal", c_uint32), ("wait", c_uint32)]


class DeviceMemAllocDesc(Base):
    STYPE = 0x15
    NAME = "ze_device_mem_alloc_desc_t"
    _fields_: ClassVar = [("flags", c_uint32), ("ordinal", c_uint32)]


class HostMemAllocDesc(Base):
    STYPE = 0x16
    NAME = "ze_host_mem_alloc_desc_t"
    _fields_: ClassVar = [("flags", c_uint32)]


class SystemMemory(Base):
    STYPE = 0x20037
    NAME = "ze_external_memmap_sysmem_ext_desc_t"
    _fields_: ClassVar = [("pSystemMemory", c_void_p), ("size", c_uint64)]


class ImageFormat(ctypes.Structure):
    NAME = "ze_image_format_t"
    _fields_: ClassVar = [
        ("layout", c_uint32), ("type", c_uint32), ("x", c_uint32), ("y", c_uint32), ("z", c_uint32), ("w", c_uint32),
    ]


class ImageDesc(Base):
    STYPE = 0x13
    NAME = "ze_image_desc_t"
    _fields_: ClassVar = [
        ("flags", c_uint32), ("type", c_uint32), ("format", ImageFormat), ("width", c_uint64), ("height", c_uint32),
        ("depth", c_uint32), ("arraylevels", c_uint32), ("miplevels", c_uint32),
    ]


class ImageRegion(ctypes.Structure):
    NAME = "ze_image_region_t"
    _fields_: ClassVar = [
        ("originX", c_uint32), ("originY", c_uint32), ("originZ", c_uint32),
        ("width", c_uint32), ("height", c_uint32), ("depth", c_uint32),
    ]


class InitDriverTypeDesc(Base):
    STYPE = 0x20021
    NAME = "ze_init_driver_type_desc_t"
    _fields_: ClassVar = [("flags", c_uint32)]


class DriverExtension(ctypes.Structure):
    NAME = "ze_driver_extension_properties_t"
    _fields_: ClassVar = [("name", c_char * 256), ("version", c_uint32)]


class LoaderVersion(ctypes.Structure):
    NAME = "zel_version_t"
    _fields_: ClassVar = [("major", c_int), ("minor", c_int), ("patch", c_int)]


class ComponentVersion(ctypes.Structure):
    NAME = "zel_component_version_t"
    _fields_: ClassVar = [
        ("component_name", c_char * 64), ("spec_version", c_uint32), ("component_lib_version", LoaderVersion),
    ]


STRUCTS: Final[tuple[type[ctypes.Structure], ...]] = (
    ExternalSemaphoreDesc, ExternalSemaphoreWin32Desc, ExternalSemaphoreFdDesc, SignalParams, WaitParams,
    DriverProperties, DeviceProperties, DeviceLuid, DeviceIpVersion, DeviceExternalMemory, QueueGroup,
    ExportDesc, ExportFd, MemoryAllocationProperties, ImportFd, ImportWin32,
    ContextDesc, QueueDesc, EventPoolDesc, EventDesc, DeviceMemAllocDesc, HostMemAllocDesc, SystemMemory,
    ImageFormat, ImageDesc,
    ImageRegion, InitDriverTypeDesc, DriverExtension, LoaderVersion, ComponentVersion,
)

INIT_DRIVER_GPU: Final = 1
DEVICE_TYPE_GPU: Final = 1
GROUP_COMPUTE: Final = 1
GROUP_COPY: Final = 2
QUEUE_IN_ORDER: Final = 2
QUEUE_MODE_ASYNCHRONOUS: Final = 2
EVENT_POOL_HOST_VISIBLE: Final = 1
SCOPE_HOST: Final = 4
MEMORY_TYPE_HOST: Final = 1
MEMORY_TYPE_DEVICE: Final = 2
MEMORY_TYPE_SHARED: Final = 3
TRANSLATE_DEVICE: Final = 1
TRANSLATE_DRIVER: Final = 0
TRANSLATE_COMMAND_LIST: Final = 4
TRANSLATE_EVENT: Final = 7

SPEC_WITH_EXTENSION: Final = 0x1000C
"""Version 1.12 of the specification, the first with the extension. The driver's own tables are requested for it."""

_Handle = c_void_p
_Pointer = c_void_p
_Count = POINTER(c_uint32)
_Handles = POINTER(c_void_p)
# The last arguments of every append: event to signal, number of events to wait for, those events.
_EVENTS = (_Handle, c_uint32, _Handles)

PROTOTYPES: Final[dict[str, tuple[Any, ...]]] = {
    "zeInit": (c_uint32,),
    "zeInitDrivers": (_Count, _Handles, POINTER(InitDriverTypeDesc)),
    "zeDriverGet": (_Count, _Handles),
    "zeDriverGetApiVersion": (_Handle, POINTER(c_uint32)),
    "zeDriverGetProperties": (_Handle, POINTER(DriverProperties)),
    "zeDriverGetExtensionProperties": (_Handle, _Count, POINTER(DriverExtension)),
    "zeDriverGetExtensionFunctionAddress": (_Handle, ctypes.c_char_p, POINTER(c_void_p)),
    "zeDeviceGet": (_Handle, _Count, _Handles),
    "zeDeviceGetSubDevices": (_Handle, _Count, _Handles),
    "zeDeviceGetProperties": (_Handle, POINTER(DeviceProperties)),
    "zeDeviceGetExternalMemoryProperties": (_Handle, POINTER(DeviceExternalMemory)),
    "zeDeviceGetCommandQueueGroupProperties": (_Handle, _Count, POINTER(QueueGroup)),
    "zeContextCreate": (_Handle, POINTER(ContextDesc), POINTER(c_void_p)),
    "zeContextDestroy": (_Handle,),
    "zeCommandListCreateImmediate": (_Handle, _Handle, POINTER(QueueDesc), POINTER(c_void_p)),
    "zeCommandListDestroy": (_Handle,),
    "zeCommandListIsImmediate": (_Handle, POINTER(c_uint8)),
    "zeCommandListGetDeviceHandle": (_Handle, POINTER(c_void_p)),
    "zeCommandListGetContextHandle": (_Handle, POINTER(c_void_p)),
    "zeCommandListAppendBarrier": (_Handle, *_EVENTS),
    "zeCommandListAppendMemoryCopy": (_Handle, _Pointer, _Pointer, c_size_t, *_EVENTS),
    "zeCommandListAppendMemoryFill": (_Handle, _Pointer, _Pointer, c_size_t, c_size_t, *_EVENTS),
    "zeCommandListAppendImageCopyToMemory": (_Handle, _Pointer, _Handle, POINTER(ImageRegion), *_EVENTS),
    "zeCommandListAppendImageCopyFromMemory": (_Handle, _Handle, _Pointer, POINTER(ImageRegion), *_EVENTS),
    "zeCommandListAppendImageCopyToMemoryExt": (
        _Handle, _Pointer, _Handle, POINTER(ImageRegion), c_uint32, c_uint32, *_EVENTS),
    "zeCommandListAppendImageCopyFromMemoryExt": (
        _Handle, _Handle, _Pointer, POINTER(ImageRegion), c_uint32, c_uint32, *_EVENTS),
    "zeCommandListAppendImageCopyRegion": (
        _Handle, _Handle, _Handle, POINTER(ImageRegion), POINTER(ImageRegion), *_EVENTS),
    "zeEventPoolCreate": (_Handle, POINTER(EventPoolDesc), c_uint32, _Handles, POINTER(c_void_p)),
    "zeEventPoolDestroy": (_Handle,),
    "zeEventCreate": (_Handle, POINTER(EventDesc), POINTER(c_void_p)),
    "zeEventDestroy": (_Handle,),
    "zeEventHostSynchronize": (_Handle, c_uint64),
    "zeEventQueryStatus": (_Handle,),
    "zeEventHostReset": (_Handle,),
    "zeEventHostSignal": (_Handle,),
    "zeMemAllocDevice": (_Handle, POINTER(DeviceMemAllocDesc), c_size_t, c_size_t, _Handle, POINTER(c_void_p)),
    "zeMemAllocHost": (_Handle, POINTER(HostMemAllocDesc), c_size_t, c_size_t, POINTER(c_void_p)),
    "zeMemFree": (_Handle, _Pointer),
    "zeMemGetAddressRange": (_Handle, _Pointer, POINTER(c_void_p), POINTER(c_size_t)),
    "zeMemGetAllocProperties": (_Handle, _Pointer, POINTER(MemoryAllocationProperties), POINTER(c_void_p)),
    "zeImageCreate": (_Handle, _Handle, POINTER(ImageDesc), POINTER(c_void_p)),
    "zeImageDestroy": (_Handle,),
    "zelLoaderTranslateHandle": (c_int, _Handle, POINTER(c_void_p)),
    "zelGetLoaderVersion": (POINTER(ComponentVersion),),
    "zelLoaderGetVersions": (POINTER(c_size_t), POINTER(ComponentVersion)),
    # The extension's four functions, from any source.
    "zeDeviceImportExternalSemaphoreExt": (_Handle, POINTER(ExternalSemaphoreDesc), POINTER(c_void_p)),
    "zeDeviceReleaseExternalSemaphoreExt": (_Handle,),
    "zeCommandListAppendSignalExternalSemaphoreExt": (_Handle, c_uint32, _Handles, POINTER(SignalParams), *_EVENTS),
    "zeCommandListAppendWaitExternalSemaphoreExt": (_Handle, c_uint32, _Handles, POINTER(WaitParams), *_EVENTS),
    # The driver's own tables.
    "zeGetDriverProcAddrTable": (c_uint32, _Handles),
    "zeGetDeviceProcAddrTable": (c_uint32, _Handles),
    "zeGetCommandListProcAddrTable": (c_uint32, _Handles),
}
"""Arguments by function. Every function returns a ze_result_t and uses the C calling convention on every platform."""

EXTENSION_FUNCTIONS: Final[dict[str, tuple[str, int]]] = {
    "zeDeviceImportExternalSemaphoreExt": ("zeGetDeviceProcAddrTable", 19),
    "zeDeviceReleaseExternalSemaphoreExt": ("zeGetDeviceProcAddrTable", 20),
    "zeCommandListAppendSignalExternalSemaphoreExt": ("zeGetCommandListProcAddrTable", 34),
    "zeCommandListAppendWaitExternalSemaphoreExt": ("zeGetCommandListProcAddrTable", 35),
}
"""The four functions and their positions in the driver's own tables, fixed since 1.12."""

IS_IMMEDIATE: Final = ("zeGetCommandListProcAddrTable", 33)
"""Position of zeCommandListIsImmediate in a driver's own table, since 1.9; loaders before 1.17 do not export it."""
