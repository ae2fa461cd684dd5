/* The same functions, with the per-thread default stream as stream 0. */
#include "sim.h"

#define DEFAULT(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define UNPACK(...) __VA_ARGS__

/* Stream first, and stream last. */
#define FIRST(name, parameters, arguments)                                      \
    CUresult name(CUstream stream UNPACK parameters);                           \
    EXPORT CUresult name##_ptsz(CUstream stream UNPACK parameters);             \
    EXPORT CUresult name##_ptsz(CUstream stream UNPACK parameters) { return name(DEFAULT(stream) UNPACK arguments); }
#define LAST(name, parameters, arguments)                                       \
    CUresult name(UNPACK parameters, CUstream stream);                          \
    EXPORT CUresult name##_ptsz(UNPACK parameters, CUstream stream);            \
    EXPORT CUresult name##_ptsz(UNPACK parameters, CUstream stream) { return name(UNPACK arguments, DEFAULT(stream)); }

FIRST(cuStreamQuery, (), ())
FIRST(cuStreamSynchronize, (), ())
FIRST(cuStreamWaitEvent, (, CUevent event, unsigned flags), (, event, flags))
FIRST(cuStreamGetFlags, (, unsigned *flags), (, flags))
FIRST(cuStreamGetPriority, (, int *priority), (, priority))
FIRST(cuStreamGetId, (, unsigned long long *id), (, id))
FIRST(cuStreamGetCtx, (, CUcontext *context), (, context))
FIRST(cuStreamGetCtx_v2, (, CUcontext *context, void **green), (, context, green))
FIRST(cuStreamGetDevice, (, CUdevice *device), (, device))
FIRST(cuStreamWaitValue32_v2, (, CUdeviceptr at, uint32_t value, unsigned flags), (, at, value, flags))
FIRST(cuStreamWaitValue64_v2, (, CUdeviceptr at, uint64_t value, unsigned flags), (, at, value, flags))
FIRST(cuStreamWriteValue32_v2, (, CUdeviceptr at, uint32_t value, unsigned flags), (, at, value, flags))
FIRST(cuStreamWriteValue64_v2, (, CUdeviceptr at, uint64_t value, unsigned flags), (, at, value, flags))
FIRST(cuStreamBatchMemOp_v2, (, unsigned count, const CUstreamBatchMemOpParams *params, unsigned flags),
      (, count, params, flags))
FIRST(cuLaunchHostFunc, (, CUhostFn function, void *data), (, function, data))
FIRST(cuStreamBeginCapture_v2, (, int mode), (, mode))
FIRST(cuStreamEndCapture, (, CUgraph *graph), (, graph))
FIRST(cuStreamIsCapturing, (, int *status), (, status))
FIRST(cuStreamGetCaptureInfo, (, int *status, unsigned long long *id), (, status, id))
FIRST(cuStreamGetCaptureInfo_v2,
      (, int *status, unsigned long long *id, CUgraph *graph, CUgraphNode const **depends, size_t *count),
      (, status, id, graph, depends, count))
FIRST(cuStreamGetCaptureInfo_v3,
      (, int *status, unsigned long long *id, CUgraph *graph, CUgraphNode const **depends, const void **edges, size_t *count),
      (, status, id, graph, depends, edges, count))

LAST(cuMemAllocAsync, (CUdeviceptr *out, size_t size), (out, size))
LAST(cuMemFreeAsync, (CUdeviceptr address), (address))
LAST(cuEventRecord, (CUevent event), (event))
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
EXPORT CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
    return cuEventRecordWithFlags(event, DEFAULT(stream), flags);
}
LAST(cuSignalExternalSemaphoresAsync,
     (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count),
     (semaphores, params, count))
LAST(cuWaitExternalSemaphoresAsync,
     (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count),
     (semaphores, params, count))
LAST(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
LAST(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size), (to, from, size))
LAST(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size), (to, from, size))
LAST(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
LAST(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy), (copy))
LAST(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy), (copy))
LAST(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
LAST(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
LAST(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count), (to, value, count))
LAST(cuGraphUpload, (CUgraphExec exec), (exec))
LAST(cuGraphLaunch, (CUgraphExec exec), (exec))
CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return cuGraphInstantiateWithParams(out, graph, params);
}
