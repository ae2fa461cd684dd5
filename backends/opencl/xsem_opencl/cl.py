"""OpenCL's numbers and the prototypes of the functions in use, from its headers."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Final

__all__ = [
    "ACQUIRE",
    "CREATE_IMAGE",
    "EXTENSION_FUNCTIONS",
    "GIVE_BACK",
    "MAP",
    "MEMORY_FUNCTIONS",
    "PROTOTYPES",
    "SEMAPHORE_FUNCTIONS",
    "UNMAP",
    "ImageDesc",
    "ImageFormat",
    "Region",
]

CL_TRUE: Final = 1
CL_FALSE: Final = 0

# clGetPlatformInfo
PLATFORM_VERSION: Final = 0x0901
PLATFORM_NAME: Final = 0x0902
# clGetDeviceIDs
DEVICE_TYPE_ALL: Final = 0xFFFFFFFF
# clGetDeviceInfo
DEVICE_VENDOR_ID: Final = 0x1001
DEVICE_IMAGE_SUPPORT: Final = 0x1016
DEVICE_MEM_BASE_ADDR_ALIGN: Final = 0x1019  # bits
DEVICE_NAME: Final = 0x102B
DRIVER_VERSION: Final = 0x102D
DEVICE_VERSION: Final = 0x102F
DEVICE_EXTENSIONS: Final = 0x1030
DEVICE_SEMAPHORE_TYPES: Final = 0x204C
DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES: Final = 0x204D
DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES: Final = 0x204E
DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES: Final = 0x204F
DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES: Final = 0x2052  # …_ASSUME_LINEAR_IMAGES_HANDLE_TYPES_KHR
DEVICE_UUID: Final = 0x106A
DRIVER_UUID: Final = 0x106B
DEVICE_LUID_VALID: Final = 0x106C
DEVICE_LUID: Final = 0x106D
# clCreateContext, clGetContextInfo
CONTEXT_DEVICES: Final = 0x1081
CONTEXT_PLATFORM: Final = 0x1084
# clGetCommandQueueInfo
QUEUE_CONTEXT: Final = 0x1090
QUEUE_DEVICE: Final = 0x1091
QUEUE_PROPERTIES: Final = 0x1093
QUEUE_OUT_OF_ORDER: Final = 1
# clGetEventInfo
EVENT_COMMAND_QUEUE: Final = 0x11D0
EVENT_COMMAND_TYPE: Final = 0x11D1
EVENT_COMMAND_EXECUTION_STATUS: Final = 0x11D3
EVENT_CONTEXT: Final = 0x11D4
COMMAND_USER: Final = 0x1204
COMPLETE: Final = 0
# memory
MEM_READ_WRITE: Final = 1
MEM_USE_HOST_PTR: Final = 1 << 3
MEM_ALLOC_HOST_PTR: Final = 1 << 4
MAP_READ_AND_WRITE: Final = 3
MAP_WRITE_INVALIDATE_REGION: Final = 1 << 2
BUFFER_CREATE_TYPE_REGION: Final = 0x1220
# cl_khr_semaphore, cl_khr_external_semaphore
SEMAPHORE_TYPE: Final = 0x203D
SEMAPHORE_TYPE_BINARY: Final = 1
SEMAPHORE_EXPORT_HANDLE_TYPES: Final = 0x203F
SEMAPHORE_DEVICE_HANDLE_LIST: Final = 0x2053
# cl_khr_external_memory
MEM_DEVICE_HANDLE_LIST: Final = 0x2051

_handles = POINTER(c_void_p)
_events = (c_uint32, _handles, _handles)  # number, list, location for the new event
_get_info = (c_void_p, c_uint32, c_size_t, c_void_p, POINTER(c_size_t))
_code = POINTER(c_int32)


class ImageFormat(Structure):
    """cl_image_format."""

    _fields_ = (("channel_order", c_uint32), ("channel_data_type", c_uint32))


class ImageDesc(Structure):
    """cl_image_desc."""

    _fields_ = (
        ("type", c_uint32), ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("array_size", c_size_t),
        ("row_pitch", c_size_t), ("slice_pitch", c_size_t), ("num_mip_levels", c_uint32), ("num_samples", c_uint32),
        ("buffer", c_void_p),
    )


class Region(Structure):
    """cl_buffer_region."""

    _fields_ = (("origin", c_size_t), ("size", c_size_t))


CREATE_IMAGE: Final = "clCreateImageWithProperties"
ACQUIRE: Final = "clEnqueueAcquireExternalMemObjectsKHR"
GIVE_BACK: Final = "clEnqueueReleaseExternalMemObjectsKHR"
MAP: Final = "clEnqueueMapBuffer"
UNMAP: Final = "clEnqueueUnmapMemObject"

_semaphores = (c_void_p, c_uint32, _handles, POINTER(c_uint64), *_events)
_handover = (c_void_p, c_uint32, _handles, *_events)
_triple = POINTER(c_size_t)
_rect = (c_void_p, c_void_p, c_void_p, _triple, _triple, _triple, c_size_t, c_size_t, c_size_t, c_size_t, *_events)
_image_copy = (c_void_p, c_void_p, c_uint32, _triple, _triple, c_size_t, c_size_t, c_void_p, *_events)

# Result and arguments by name. A cl_event* is declared as cl_event[]; a cl_bitfield has 64 bits.
PROTOTYPES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "clGetPlatformIDs": (c_int32, (c_uint32, _handles, POINTER(c_uint32))),
    "clGetPlatformInfo": (c_int32, _get_info),
    "clGetDeviceIDs": (c_int32, (c_void_p, c_uint64, c_uint32, _handles, POINTER(c_uint32))),
    "clGetDeviceInfo": (c_int32, _get_info),
    "clGetExtensionFunctionAddressForPlatform": (c_void_p, (c_void_p, c_char_p)),
    "clCreateContext": (c_void_p, (POINTER(c_size_t), c_uint32, _handles, c_void_p, c_void_p, _code)),
    "clRetainContext": (c_int32, (c_void_p,)),
    "clReleaseContext": (c_int32, (c_void_p,)),
    "clGetContextInfo": (c_int32, _get_info),
    # Deprecated since 2.0, but present in every driver. Drivers before 2.0 lack its replacement.
    "clCreateCommandQueue": (c_void_p, (c_void_p, c_void_p, c_uint64, _code)),
    "clRetainCommandQueue": (c_int32, (c_void_p,)),
    "clReleaseCommandQueue": (c_int32, (c_void_p,)),
    "clGetCommandQueueInfo": (c_int32, _get_info),
    "clFlush": (c_int32, (c_void_p,)),
    "clFinish": (c_int32, (c_void_p,)),
    "clGetEventInfo": (c_int32, _get_info),
    "clCreateUserEvent": (c_void_p, (c_void_p, _code)),
    "clSetUserEventStatus": (c_int32, (c_void_p, c_int32)),
    "clRetainEvent": (c_int32, (c_void_p,)),
    "clReleaseEvent": (c_int32, (c_void_p,)),
    "clEnqueueBarrierWithWaitList": (c_int32, (c_void_p, *_events)),
    "clCreateBuffer": (c_void_p, (c_void_p, c_uint64, c_size_t, c_void_p, _code)),
    "clCreateBufferWithProperties": (
        c_void_p, (c_void_p, POINTER(c_uint64), c_uint64, c_size_t, c_void_p, _code)),
    "clCreateSubBuffer": (c_void_p, (c_void_p, c_uint64, c_uint32, c_void_p, _code)),
    CREATE_IMAGE: (c_void_p, (c_void_p, POINTER(c_uint64), c_uint64, POINTER(ImageFormat), POINTER(ImageDesc),
                              c_void_p, _code)),
    "clGetSupportedImageFormats": (
        c_int32, (c_void_p, c_uint64, c_uint32, c_uint32, POINTER(ImageFormat), POINTER(c_uint32))),
    "clReleaseMemObject": (c_int32, (c_void_p,)),
    MAP: (
        c_void_p, (c_void_p, c_void_p, c_uint32, c_uint64, c_size_t, c_size_t, *_events, _code)),
    UNMAP: (c_int32, (c_void_p, c_void_p, c_void_p, *_events)),
    "clEnqueueCopyBuffer": (c_int32, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, *_events)),
    "clEnqueueReadBuffer": (c_int32, (c_void_p, c_void_p, c_uint32, c_size_t, c_size_t, c_void_p, *_events)),
    "clEnqueueWriteBuffer": (c_int32, (c_void_p, c_void_p, c_uint32, c_size_t, c_size_t, c_void_p, *_events)),
    "clEnqueueFillBuffer": (c_int32, (c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, *_events)),
    "clEnqueueCopyBufferRect": (c_int32, _rect),
    "clEnqueueCopyImage": (c_int32, (c_void_p, c_void_p, c_void_p, _triple, _triple, _triple, *_events)),
    "clEnqueueCopyImageToBuffer": (c_int32, (c_void_p, c_void_p, c_void_p, _triple, _triple, c_size_t, *_events)),
    "clEnqueueCopyBufferToImage": (c_int32, (c_void_p, c_void_p, c_void_p, c_size_t, _triple, _triple, *_events)),
    "clEnqueueReadImage": (c_int32, _image_copy),
    "clEnqueueWriteImage": (c_int32, _image_copy),
    # ---- extensions
    "clCreateSemaphoreWithPropertiesKHR": (c_void_p, (c_void_p, POINTER(c_uint64), _code)),
    "clEnqueueWaitSemaphoresKHR": (c_int32, _semaphores),
    "clEnqueueSignalSemaphoresKHR": (c_int32, _semaphores),
    "clReleaseSemaphoreKHR": (c_int32, (c_void_p,)),
    "clGetSemaphoreHandleForTypeKHR": (
        c_int32, (c_void_p, c_void_p, c_uint32, c_size_t, c_void_p, POINTER(c_size_t))),
    "clEnqueueAcquireExternalMemObjectsKHR": (c_int32, _handover),
    "clEnqueueReleaseExternalMemObjectsKHR": (c_int32, _handover),
}

# The functions for imports of semaphores
SEMAPHORE_FUNCTIONS: Final = ("clCreateSemaphoreWithPropertiesKHR", "clEnqueueWaitSemaphoresKHR",
                              "clEnqueueSignalSemaphoresKHR", "clReleaseSemaphoreKHR")
# The functions for imports of memory
MEMORY_FUNCTIONS: Final = ("clCreateBufferWithProperties", ACQUIRE, GIVE_BACK)
# The functions requested from the platform. The loader exports the others.
EXTENSION_FUNCTIONS: Final = frozenset(name for name in PROTOTYPES if name.endswith("KHR"))
