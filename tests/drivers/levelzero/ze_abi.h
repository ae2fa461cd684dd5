/* The part of Level Zero's ABI that the stand-in uses: numbers, and structs whose layout layouts.def asserts. 64-bit only.
 * The names are those of the interface, so that layouts.c can compare the same table with the vendor's header. */
#ifndef SIMZE_ABI_H
#define SIMZE_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t ze_result_t;
typedef uint8_t ze_bool_t;
typedef struct sim_driver *ze_driver_handle_t;
typedef struct sim_device *ze_device_handle_t;
typedef struct sim_context *ze_context_handle_t;
typedef struct sim_lane *ze_command_queue_handle_t;
typedef struct sim_list *ze_command_list_handle_t;
typedef struct sim_fence *ze_fence_handle_t;
typedef struct sim_pool *ze_event_pool_handle_t;
typedef struct sim_event *ze_event_handle_t;
typedef struct sim_image *ze_image_handle_t;
typedef struct sim_semaphore *ze_external_semaphore_ext_handle_t;

#define ZE_MAKE(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))

enum {
    ZE_RESULT_SUCCESS = 0,
    ZE_RESULT_NOT_READY = 1,
    ZE_RESULT_ERROR_DEVICE_LOST = 0x70000001,
    ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY = 0x70000002,
    ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY = 0x70000003,
    ZE_RESULT_ERROR_UNINITIALIZED = 0x78000001,
    ZE_RESULT_ERROR_UNSUPPORTED_VERSION = 0x78000002,
    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x78000003,
    ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x78000004,
    ZE_RESULT_ERROR_INVALID_NULL_HANDLE = 0x78000005,
    ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE = 0x78000006,
    ZE_RESULT_ERROR_INVALID_NULL_POINTER = 0x78000007,
    ZE_RESULT_ERROR_INVALID_SIZE = 0x78000008,
    ZE_RESULT_ERROR_UNSUPPORTED_SIZE = 0x78000009,
    ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT = 0x7800000a,
    ZE_RESULT_ERROR_INVALID_ENUMERATION = 0x7800000c,
    ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION = 0x7800000d,
    ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT = 0x7800000e,
    ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE = 0x78000019
};

enum {
    ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES = 0x1,
    ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
    ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES = 0x6,
    ZE_STRUCTURE_TYPE_DEVICE_EXTERNAL_MEMORY_PROPERTIES = 0xc,
    ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
    ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
    ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC = 0xf,
    ZE_STRUCTURE_TYPE_EVENT_POOL_DESC = 0x10,
    ZE_STRUCTURE_TYPE_EVENT_DESC = 0x11,
    ZE_STRUCTURE_TYPE_FENCE_DESC = 0x12,
    ZE_STRUCTURE_TYPE_IMAGE_DESC = 0x13,
    ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
    ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC = 0x16,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC = 0x20037,
    ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES = 0x17,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC = 0x18,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD = 0x19,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD = 0x1a,
    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32 = 0x22,
    ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES = 0x10008,
    ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES = 0x1000d,
    ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT = 0x1000f,
    ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC = 0x20001,
    ZE_STRUCTURE_TYPE_BINDLESS_IMAGE_EXP_DESC = 0x2001e,
    ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC = 0x20021,
    ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_EXT_DESC = 0x20022,
    ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WIN32_EXT_DESC = 0x20023,
    ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_FD_EXT_DESC = 0x20024,
    ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_EXT = 0x20025,
    ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WAIT_PARAMS_EXT = 0x20026
};

enum {
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD = 0x1,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32 = 0x2,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32_KMT = 0x4,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D12_FENCE = 0x8,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D11_FENCE = 0x10,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX = 0x20,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX_KMT = 0x40,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD = 0x80,
    ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_WIN32 = 0x100
};
enum {
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD = 0x1,
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF = 0x2,
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32 = 0x4,
    ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE = 0x80
};
enum { ZE_DEVICE_TYPE_GPU = 1 };
enum { ZE_INIT_FLAG_GPU_ONLY = 1, ZE_INIT_FLAG_VPU_ONLY = 2 };
enum { ZE_INIT_DRIVER_TYPE_FLAG_GPU = 1, ZE_INIT_DRIVER_TYPE_FLAG_NPU = 2 };
enum { ZE_COMMAND_QUEUE_MODE_DEFAULT = 0, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS = 1, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS = 2 };
enum { ZE_COMMAND_QUEUE_FLAG_IN_ORDER = 2 };
enum { ZE_COMMAND_LIST_FLAG_IN_ORDER = 8 };
enum { ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE = 1, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY = 2 };
enum { ZE_EVENT_POOL_FLAG_HOST_VISIBLE = 1 };
enum { ZE_MEMORY_TYPE_UNKNOWN = 0, ZE_MEMORY_TYPE_HOST = 1, ZE_MEMORY_TYPE_DEVICE = 2, ZE_MEMORY_TYPE_SHARED = 3 };
enum {
    ZE_IMAGE_TYPE_1D = 0, ZE_IMAGE_TYPE_1DARRAY = 1, ZE_IMAGE_TYPE_2D = 2, ZE_IMAGE_TYPE_2DARRAY = 3, ZE_IMAGE_TYPE_3D = 4,
    ZE_IMAGE_TYPE_BUFFER = 5
};

/* The head of each structure. `stype` determines the fields after `pNext`. */
#define ZE_HEAD   \
    int32_t stype; \
    void *pNext;

typedef struct { ZE_HEAD } ze_base_properties_t;
typedef ze_base_properties_t ze_base_desc_t;

typedef struct { uint8_t id[16]; } ze_driver_uuid_t;
typedef struct { uint8_t id[16]; } ze_device_uuid_t;
typedef struct { uint8_t id[8]; } ze_device_luid_ext_t;

typedef struct { ZE_HEAD ze_driver_uuid_t uuid; uint32_t driverVersion; } ze_driver_properties_t;
typedef struct { char name[256]; uint32_t version; } ze_driver_extension_properties_t;
typedef struct { ZE_HEAD uint32_t flags; } ze_init_driver_type_desc_t;
typedef struct {
    ZE_HEAD
    uint32_t type, vendorId, deviceId, flags, subdeviceId, coreClockRate;
    uint64_t maxMemAllocSize;
    uint32_t maxHardwareContexts, maxCommandQueuePriority, numThreadsPerEU, physicalEUSimdWidth, numEUsPerSubslice,
        numSubslicesPerSlice, numSlices;
    uint64_t timerResolution;
    uint32_t timestampValidBits, kernelTimestampValidBits;
    ze_device_uuid_t uuid;
    char name[256];
} ze_device_properties_t;
typedef struct { ZE_HEAD uint32_t flags, maxClockRate, maxBusWidth; uint64_t totalSize; char name[256]; } ze_device_memory_properties_t;
typedef struct {
    ZE_HEAD
    uint32_t hostAllocCapabilities, deviceAllocCapabilities, sharedSingleDeviceAllocCapabilities,
        sharedCrossDeviceAllocCapabilities, sharedSystemAllocCapabilities;
} ze_device_memory_access_properties_t;
typedef struct {
    ZE_HEAD
    uint32_t maxImageDims1D, maxImageDims2D, maxImageDims3D;
    uint64_t maxImageBufferSize;
    uint32_t maxImageArraySlices, maxSamplers, maxReadImageArgs, maxWriteImageArgs;
} ze_device_image_properties_t;
typedef struct {
    ZE_HEAD uint32_t memoryAllocationImportTypes, memoryAllocationExportTypes, imageImportTypes, imageExportTypes;
} ze_device_external_memory_properties_t;
typedef struct { ZE_HEAD ze_device_luid_ext_t luid; uint32_t nodeMask; } ze_device_luid_ext_properties_t;
typedef struct { ZE_HEAD uint32_t ipVersion; } ze_device_ip_version_ext_t;
typedef struct { ZE_HEAD uint32_t flags; size_t maxMemoryFillPatternSize; uint32_t numQueues; } ze_command_queue_group_properties_t;

typedef struct { ZE_HEAD uint32_t flags; } ze_context_desc_t;
typedef struct { ZE_HEAD uint32_t ordinal, index, flags, mode, priority; } ze_command_queue_desc_t;
typedef struct { ZE_HEAD uint32_t commandQueueGroupOrdinal, flags; } ze_command_list_desc_t;
typedef struct { ZE_HEAD uint32_t flags; } ze_fence_desc_t;
typedef struct { ZE_HEAD uint32_t flags, count; } ze_event_pool_desc_t;
typedef struct { ZE_HEAD uint32_t index, signal, wait; } ze_event_desc_t;

typedef struct { ZE_HEAD uint32_t flags, ordinal; } ze_device_mem_alloc_desc_t;
typedef struct { ZE_HEAD uint32_t flags; } ze_host_mem_alloc_desc_t;
typedef struct { ZE_HEAD void *pSystemMemory; uint64_t size; } ze_external_memmap_sysmem_ext_desc_t;
typedef struct { ZE_HEAD uint32_t type; uint64_t id, pageSize; } ze_memory_allocation_properties_t;
typedef struct { ZE_HEAD uint32_t flags; } ze_external_memory_export_desc_t;
typedef struct { ZE_HEAD uint32_t flags; int fd; } ze_external_memory_export_fd_t;
typedef struct { ZE_HEAD uint32_t flags; int fd; } ze_external_memory_import_fd_t;
typedef struct { ZE_HEAD uint32_t flags; void *handle; const void *name; } ze_external_memory_import_win32_handle_t;
typedef struct { uint32_t originX, originY, originZ, width, height, depth; } ze_copy_region_t;
typedef struct { uint32_t originX, originY, originZ, width, height, depth; } ze_image_region_t;
typedef struct { uint32_t layout, type, x, y, z, w; } ze_image_format_t;
typedef struct {
    ZE_HEAD
    uint32_t flags, type;
    ze_image_format_t format;
    uint64_t width;
    uint32_t height, depth, arraylevels, miplevels;
} ze_image_desc_t;
typedef struct { ZE_HEAD uint32_t samplerFilterFlags; } ze_image_properties_t;

typedef struct { ZE_HEAD uint32_t flags; } ze_external_semaphore_ext_desc_t;
typedef struct { ZE_HEAD void *handle; const char *name; } ze_external_semaphore_win32_ext_desc_t;
typedef struct { ZE_HEAD int fd; } ze_external_semaphore_fd_ext_desc_t;
typedef struct { ZE_HEAD uint64_t value; } ze_external_semaphore_signal_params_ext_t;
typedef struct { ZE_HEAD uint64_t value; } ze_external_semaphore_wait_params_ext_t;

#endif
