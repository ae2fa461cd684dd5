/* The part of the CUDA driver's ABI that the stand-in uses: numbers, and structs with asserted layouts. 64-bit only. */
#ifndef SIMCUDA_ABI_H
#define SIMCUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct sim_context *CUcontext;
typedef struct sim_stream *CUstream;
typedef struct sim_event *CUevent;
typedef struct sim_semaphore *CUexternalSemaphore;
typedef struct sim_external_memory *CUexternalMemory;
typedef struct sim_mipmap *CUmipmappedArray;
typedef struct sim_array *CUarray;
typedef struct sim_graph *CUgraph;
typedef struct sim_exec *CUgraphExec;
typedef struct sim_node *CUgraphNode;
typedef void (*CUhostFn)(void *);

enum {
#define CODE(name, number) name = number,
#include "codes.def"
#undef CODE
};

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

enum { STREAM_NON_BLOCKING = 1 };
enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2, EVENT_INTERPROCESS = 4 };
enum { CAPTURE_MODE_GLOBAL = 0, CAPTURE_MODE_THREAD_LOCAL = 1, CAPTURE_MODE_RELAXED = 2 };
enum { CAPTURE_NONE = 0, CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2 };
enum { NODE_MEMCPY = 1, NODE_MEMSET = 2, NODE_HOST = 3, NODE_SIGNAL = 8, NODE_WAIT = 9, NODE_MEMOPS = 12 };
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };
/* CUstreamBatchMemOpType */
enum { MEMOP_WAIT_32 = 1, MEMOP_WRITE_32 = 2, MEMOP_WAIT_64 = 4, MEMOP_WRITE_64 = 5 };
enum { REGISTER_PORTABLE = 1, REGISTER_DEVICEMAP = 2, REGISTER_IO = 4, REGISTER_READ_ONLY = 8 };
enum { ARRAY_LAYERED = 1, ARRAY_SURFACE = 2, ARRAY_CUBEMAP = 4, ARRAY_GATHER = 8, ARRAY_COLOR = 32, ARRAY_VIDEO = 256 };

/* CUexternalSemaphoreHandleType, CUexternalMemoryHandleType */
enum {
    SEM_OPAQUE_FD = 1, SEM_OPAQUE_WIN32 = 2, SEM_OPAQUE_WIN32_KMT = 3, SEM_D3D12_FENCE = 4, SEM_D3D11_FENCE = 5,
    SEM_NVSCISYNC = 6, SEM_KEYED_MUTEX = 7, SEM_KEYED_MUTEX_KMT = 8, SEM_TIMELINE_FD = 9, SEM_TIMELINE_WIN32 = 10
};
enum {
    MEM_OPAQUE_FD = 1, MEM_OPAQUE_WIN32 = 2, MEM_OPAQUE_WIN32_KMT = 3, MEM_D3D12_HEAP = 4, MEM_D3D12_RESOURCE = 5,
    MEM_D3D11_RESOURCE = 6, MEM_D3D11_RESOURCE_KMT = 7, MEM_NVSCIBUF = 8, MEM_DMABUF_FD = 9
};
enum { MEM_DEDICATED = 1 };

/* CUmemAllocationType, CUmemLocationType, CUmemAllocationHandleType */
enum { ALLOCATION_PINNED = 1 };
enum { LOCATION_DEVICE = 1 };
enum { HANDLE_POSIX_FD = 1, HANDLE_FABRIC = 8 };
typedef unsigned long long CUmemGenericAllocationHandle;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *win32_attributes;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef union {
    int fd;
    struct {
        const void *handle;
        const void *name;
    } win32;
    const void *nvsci;
} sim_external_handle;

typedef struct {
    int type;
    sim_external_handle handle;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

typedef struct {
    int type;
    sim_external_handle handle;
    unsigned long long size;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
    struct {
        unsigned long long fence_value;
        unsigned long long nvsci;
        unsigned long long mutex_key;
        unsigned reserved[12];
    } params;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;

typedef struct {
    struct {
        unsigned long long fence_value;
        unsigned long long nvsci;
        unsigned long long mutex_key;
        unsigned mutex_timeout_ms;
        unsigned reserved[10];
    } params;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

typedef struct {
    unsigned long long offset, size;
    unsigned flags;
    unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    unsigned long long offset;
    CUDA_ARRAY3D_DESCRIPTOR array;
    unsigned levels;
    unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

typedef struct {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    size_t dst_pitch;
    size_t width, height;
} CUDA_MEMCPY2D;

typedef struct {
    size_t src_x, src_y, src_z, src_lod;
    int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    void *reserved0;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    void *reserved1;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
} CUDA_MEMCPY3D;

typedef struct {
    CUexternalSemaphore *semaphores;
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params;
    unsigned count;
} CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;

typedef struct {
    CUexternalSemaphore *semaphores;
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params;
    unsigned count;
} CUDA_EXT_SEM_WAIT_NODE_PARAMS;

typedef struct {
    unsigned operation;
    CUdeviceptr address;
    unsigned long long value; /* of a 32-bit operation: its first half */
    unsigned flags;
    unsigned long long reserved[2];
} CUstreamBatchMemOpParams;

typedef struct {
    CUcontext context;
    unsigned count;
    CUstreamBatchMemOpParams *params;
    unsigned flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

typedef struct {
    unsigned long long flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    char bytes[16];
} CUuuid;

/* Tests compare these with the classes of cuda.bindings: a struct, its size, and a field with its offset. */
#define SIMCUDA_LAYOUTS(LAYOUT)                                                                  \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, 96, handle, 8)                                   \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, 96, handle.win32.name, 16)                       \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, 96, flags, 24)                                   \
    LAYOUT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104, handle, 8)                                     \
    LAYOUT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104, size, 24)                                      \
    LAYOUT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104, flags, 32)                                     \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, 144, params.fence_value, 0)                    \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, 144, params.mutex_key, 16)                     \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, 144, flags, 72)                                \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, 144, params.fence_value, 0)                      \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, 144, params.mutex_key, 16)                       \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, 144, params.mutex_timeout_ms, 24)                \
    LAYOUT(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, 144, flags, 72)                                  \
    LAYOUT(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, 88, size, 8)                                        \
    LAYOUT(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, 88, flags, 16)                                      \
    LAYOUT(CUDA_ARRAY3D_DESCRIPTOR, 40, format, 24)                                              \
    LAYOUT(CUDA_ARRAY3D_DESCRIPTOR, 40, flags, 32)                                               \
    LAYOUT(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, 120, array, 8)                             \
    LAYOUT(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, 120, levels, 48)                           \
    LAYOUT(CUDA_MEMCPY2D, 128, dst_x, 56)                                                        \
    LAYOUT(CUDA_MEMCPY2D, 128, height, 120)                                                      \
    LAYOUT(CUDA_MEMCPY3D, 200, dst_x, 88)                                                        \
    LAYOUT(CUDA_MEMCPY3D, 200, depth, 192)                                                       \
    LAYOUT(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, 24, count, 16)                                       \
    LAYOUT(CUDA_EXT_SEM_WAIT_NODE_PARAMS, 24, count, 16)                                         \
    LAYOUT(CUstreamBatchMemOpParams, 48, value, 16)                                              \
    LAYOUT(CUstreamBatchMemOpParams, 48, flags, 24)                                              \
    LAYOUT(CUDA_BATCH_MEM_OP_NODE_PARAMS, 32, count, 8)                                          \
    LAYOUT(CUDA_BATCH_MEM_OP_NODE_PARAMS, 32, flags, 24)                                         \
    LAYOUT(CUDA_GRAPH_INSTANTIATE_PARAMS, 32, result, 24)                                        \
    LAYOUT(CUmemAllocationProp, 32, location.id, 12)                                             \
    LAYOUT(CUmemAllocationProp, 32, flags.usage, 26)                                             \
    LAYOUT(CUmemAccessDesc, 12, location.id, 4)

#define SIMCUDA_ASSERT(type, size, field, offset)                \
    _Static_assert(sizeof(type) == (size), #type);               \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field);
SIMCUDA_LAYOUTS(SIMCUDA_ASSERT)
#undef SIMCUDA_ASSERT

#endif
