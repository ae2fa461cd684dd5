/* The numbers and types of OpenCL that the layer uses. layouts.c compares them with the vendor's headers. */
#ifndef CL_ABI_H
#define CL_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef SIMCL_VENDOR_HEADERS
typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_bitfield, cl_properties;
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_event *cl_event;
typedef struct _cl_semaphore_khr *cl_semaphore_khr;
#endif

/* ---- numbers: NUMBER(name, value) each */
#define CL_NUMBERS                                       \
    NUMBER(CL_SUCCESS, 0)                                \
    NUMBER(CL_DEVICE_NOT_FOUND, -1)                      \
    NUMBER(CL_OUT_OF_HOST_MEMORY, -6)                    \
    NUMBER(CL_INVALID_VALUE, -30)                        \
    NUMBER(CL_INVALID_DEVICE_TYPE, -31)                  \
    NUMBER(CL_INVALID_DEVICE, -33)                       \
    NUMBER(CL_INVALID_CONTEXT, -34)                      \
    NUMBER(CL_INVALID_COMMAND_QUEUE, -36)                \
    NUMBER(CL_INVALID_HOST_PTR, -37)                     \
    NUMBER(CL_INVALID_MEM_OBJECT, -38)                   \
    NUMBER(CL_INVALID_EVENT_WAIT_LIST, -57)              \
    NUMBER(CL_INVALID_EVENT, -58)                        \
    NUMBER(CL_INVALID_OPERATION, -59)                    \
    NUMBER(CL_INVALID_BUFFER_SIZE, -61)                  \
    NUMBER(CL_INVALID_PROPERTY, -64)                     \
    NUMBER(CL_INVALID_SEMAPHORE_KHR, -1142)              \
    NUMBER(CL_COMPLETE, 0)                               \
    NUMBER(CL_DEVICE_TYPE_DEFAULT, 1)                    \
    NUMBER(CL_DEVICE_TYPE_CPU, 2)                        \
    NUMBER(CL_DEVICE_TYPE_GPU, 4)                        \
    NUMBER(CL_DEVICE_TYPE, 0x1000)                       \
    NUMBER(CL_DEVICE_VENDOR_ID, 0x1001)                  \
    NUMBER(CL_DEVICE_NAME, 0x102B)                       \
    NUMBER(CL_DEVICE_EXTENSIONS, 0x1030)                 \
    NUMBER(CL_DEVICE_PLATFORM, 0x1031)                   \
    NUMBER(CL_DEVICE_EXTENSIONS_WITH_VERSION, 0x1060)    \
    NUMBER(CL_DEVICE_UUID_KHR, 0x106A)                   \
    NUMBER(CL_DRIVER_UUID_KHR, 0x106B)                   \
    NUMBER(CL_DEVICE_LUID_VALID_KHR, 0x106C)             \
    NUMBER(CL_DEVICE_LUID_KHR, 0x106D)                   \
    NUMBER(CL_DEVICE_NODE_MASK_KHR, 0x106E)              \
    NUMBER(CL_PLATFORM_NAME, 0x0902)                     \
    NUMBER(CL_PLATFORM_EXTENSIONS, 0x0904)               \
    NUMBER(CL_PLATFORM_EXTENSIONS_WITH_VERSION, 0x0907)  \
    NUMBER(CL_CONTEXT_DEVICES, 0x1081)                   \
    NUMBER(CL_CONTEXT_NUM_DEVICES, 0x1083)               \
    NUMBER(CL_CONTEXT_PLATFORM, 0x1084)                  \
    NUMBER(CL_QUEUE_CONTEXT, 0x1090)                     \
    NUMBER(CL_QUEUE_DEVICE, 0x1091)                      \
    NUMBER(CL_EVENT_COMMAND_QUEUE, 0x11D0)               \
    NUMBER(CL_EVENT_COMMAND_TYPE, 0x11D1)                \
    NUMBER(CL_EVENT_COMMAND_EXECUTION_STATUS, 0x11D3)    \
    NUMBER(CL_EVENT_CONTEXT, 0x11D4)                     \
    NUMBER(CL_COMMAND_USER, 0x1204)                      \
    NUMBER(CL_MEM_USE_HOST_PTR, 8)                       \
    NUMBER(CL_MEM_ALLOC_HOST_PTR, 16)                    \
    NUMBER(CL_MEM_COPY_HOST_PTR, 32)                     \
    NUMBER(CL_MEM_FLAGS, 0x1101)                         \
    NUMBER(CL_MEM_HOST_PTR, 0x1103)                      \
    NUMBER(CL_MEM_CONTEXT, 0x1106)                       \
    NUMBER(CL_MEM_PROPERTIES, 0x110A)                    \
    NUMBER(CL_PLATFORM_SEMAPHORE_TYPES_KHR, 0x2036)      \
    NUMBER(CL_PLATFORM_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR, 0x2037) \
    NUMBER(CL_PLATFORM_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR, 0x2038) \
    NUMBER(CL_SEMAPHORE_CONTEXT_KHR, 0x2039)             \
    NUMBER(CL_SEMAPHORE_REFERENCE_COUNT_KHR, 0x203A)     \
    NUMBER(CL_SEMAPHORE_PROPERTIES_KHR, 0x203B)          \
    NUMBER(CL_SEMAPHORE_PAYLOAD_KHR, 0x203C)             \
    NUMBER(CL_SEMAPHORE_TYPE_KHR, 0x203D)                \
    NUMBER(CL_SEMAPHORE_TYPE_BINARY_KHR, 1)              \
    NUMBER(CL_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR, 0x203F) \
    NUMBER(CL_PLATFORM_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR, 0x2044) \
    NUMBER(CL_DEVICE_SEMAPHORE_TYPES_KHR, 0x204C)        \
    NUMBER(CL_DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR, 0x204D) \
    NUMBER(CL_DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR, 0x204E) \
    NUMBER(CL_DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR, 0x204F) \
    NUMBER(CL_DEVICE_HANDLE_LIST_KHR, 0x2051)            \
    NUMBER(CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR, 0x2055)    \
    NUMBER(CL_SEMAPHORE_HANDLE_D3D12_FENCE_KHR, 0x2059)  \
    NUMBER(CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR, 0x2060)

/* Newer than the headers of Debian 12. */
#define CL_NEW_NUMBERS                                   \
    NUMBER(CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR, 0x2053)  \
    NUMBER(CL_SEMAPHORE_EXPORTABLE_KHR, 0x2054)

#ifndef SIMCL_VENDOR_HEADERS
enum {
#define NUMBER(name, value) name = value,
    CL_NUMBERS CL_NEW_NUMBERS
#undef NUMBER
};

typedef struct {
    cl_uint version;
    char name[64];
} cl_name_version;
#endif

/* ---- the dispatch table, an array of pointers: name, place, result, parameters. OWN: the layer replaces it. */
#define CL_FUNCTIONS                                                                                              \
    OWN(clGetPlatformIDs, 0, cl_int, (cl_uint, cl_platform_id *, cl_uint *))                                      \
    OWN(clGetPlatformInfo, 1, cl_int, (cl_platform_id, cl_uint, size_t, void *, size_t *))                        \
    OWN(clGetDeviceIDs, 2, cl_int, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))             \
    OWN(clGetDeviceInfo, 3, cl_int, (cl_device_id, cl_uint, size_t, void *, size_t *))                            \
    OWN(clCreateContextFromType, 5, cl_context,                                                                   \
             (const intptr_t *, cl_bitfield, void (*)(const char *, const void *, size_t, void *), void *,        \
              cl_int *))                                                                                          \
    FUNCTION(clRetainContext, 6, cl_int, (cl_context))                                                            \
    FUNCTION(clReleaseContext, 7, cl_int, (cl_context))                                                           \
    FUNCTION(clGetContextInfo, 8, cl_int, (cl_context, cl_uint, size_t, void *, size_t *))                        \
    OWN(clReleaseCommandQueue, 11, cl_int, (cl_command_queue))                                                    \
    FUNCTION(clGetCommandQueueInfo, 12, cl_int, (cl_command_queue, cl_uint, size_t, void *, size_t *))            \
    FUNCTION(clCreateBuffer, 14, cl_mem, (cl_context, cl_bitfield, size_t, void *, cl_int *))                     \
    OWN(clReleaseMemObject, 18, cl_int, (cl_mem))                                                                 \
    OWN(clGetMemObjectInfo, 20, cl_int, (cl_mem, cl_uint, size_t, void *, size_t *))                              \
    OWN(clWaitForEvents, 41, cl_int, (cl_uint, const cl_event *))                                                 \
    FUNCTION(clGetEventInfo, 42, cl_int, (cl_event, cl_uint, size_t, void *, size_t *))                           \
    FUNCTION(clRetainEvent, 43, cl_int, (cl_event))                                                               \
    FUNCTION(clReleaseEvent, 44, cl_int, (cl_event))                                                              \
    OWN(clFlush, 46, cl_int, (cl_command_queue))                                                                  \
    OWN(clFinish, 47, cl_int, (cl_command_queue))                                                                 \
    OWN(clEnqueueReadBuffer, 48, cl_int,                                                                          \
             (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))  \
    OWN(clEnqueueWriteBuffer, 49, cl_int,                                                                         \
             (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,         \
              cl_event *))                                                                                        \
    OWN(clEnqueueCopyBuffer, 50, cl_int,                                                                          \
             (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *, cl_event *))   \
    OWN(clEnqueueReadImage, 51, cl_int,                                                                           \
             (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, size_t, size_t, void *, cl_uint, \
              const cl_event *, cl_event *))                                                                      \
    OWN(clEnqueueWriteImage, 52, cl_int,                                                                          \
             (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, size_t, size_t, const void *,    \
              cl_uint, const cl_event *, cl_event *))                                                             \
    OWN(clEnqueueMapBuffer, 56, void *,                                                                           \
             (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event *,          \
              cl_event *, cl_int *))                                                                              \
    OWN(clEnqueueMapImage, 57, void *,                                                                            \
             (cl_command_queue, cl_mem, cl_bool, cl_bitfield, const size_t *, const size_t *, size_t *, size_t *, \
              cl_uint, const cl_event *, cl_event *, cl_int *))                                                   \
    FUNCTION(clEnqueueNativeKernel, 61, cl_int,                                                                   \
             (cl_command_queue, void (*)(void *), void *, size_t, cl_uint, const cl_mem *, const void **,         \
              cl_uint, const cl_event *, cl_event *))                                                             \
    OWN(clGetExtensionFunctionAddress, 65, void *, (const char *))                                                \
    FUNCTION(clSetEventCallback, 81, cl_int, (cl_event, cl_int, void (*)(cl_event, cl_int, void *), void *))      \
    FUNCTION(clSetMemObjectDestructorCallback, 83, cl_int, (cl_mem, void (*)(cl_mem, void *), void *))            \
    FUNCTION(clCreateUserEvent, 84, cl_event, (cl_context, cl_int *))                                             \
    FUNCTION(clSetUserEventStatus, 85, cl_int, (cl_event, cl_int))                                                \
    OWN(clEnqueueReadBufferRect, 86, cl_int,                                                                      \
             (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, const size_t *, size_t, size_t,  \
              size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))                                     \
    OWN(clEnqueueWriteBufferRect, 87, cl_int,                                                                     \
             (cl_command_queue, cl_mem, cl_bool, const size_t *, const size_t *, const size_t *, size_t, size_t,  \
              size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *))                               \
    OWN(clEnqueueCopyBufferRect, 88, cl_int,                                                                      \
             (cl_command_queue, cl_mem, cl_mem, const size_t *, const size_t *, const size_t *, size_t, size_t,   \
              size_t, size_t, cl_uint, const cl_event *, cl_event *))                                             \
    OWN(clEnqueueFillBuffer, 102, cl_int,                                                                         \
             (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const cl_event *,          \
              cl_event *))                                                                                        \
    FUNCTION(clEnqueueMarkerWithWaitList, 105, cl_int, (cl_command_queue, cl_uint, const cl_event *, cl_event *)) \
    OWN(clGetExtensionFunctionAddressForPlatform, 107, void *, (cl_platform_id, const char *))                    \
    OWN(clEnqueueSVMMemcpy, 129, cl_int,                                                                          \
             (cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint, const cl_event *, cl_event *))    \
    OWN(clEnqueueSVMMap, 131, cl_int,                                                                             \
             (cl_command_queue, cl_bool, cl_bitfield, void *, size_t, cl_uint, const cl_event *, cl_event *))     \
    OWN(clCreateBufferWithProperties, 146, cl_mem,                                                                \
             (cl_context, const cl_properties *, cl_bitfield, size_t, void *, cl_int *))

#define CL_PLACES 149 /* of OpenCL 3.0 */

#endif
