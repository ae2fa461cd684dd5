/* Actions of operations: fills, host functions; and the functions that append them. Copies are in copy.c, semaphores in
 * semaphore.c, words in memops.c. */
#include "sim.h"

sim_work *sim_work_new(int node, bool (*run)(sim_work *, bool)) {
    sim_work *work = calloc(1, sizeof *work);
    work->node = node;
    work->run = run;
    return work;
}

sim_work *sim_work_copy(const sim_work *work) {
    if (work->copy_of) return work->copy_of(work);
    sim_work *copy = malloc(sizeof *copy);
    memcpy(copy, work, sizeof *copy);
    return copy;
}

void sim_work_drop(sim_work *work) {
    if (work->drop) work->drop(work);
    free(work);
}

/* A failure of running work. The next call that reports failures of earlier work returns it. */
void sim_async(CUresult code) {
    sim_note("# asynchronous failure %d", code);
    if (!sim.async_error) sim.async_error = code;
}

/* ---- fills */
static bool run_set(sim_work *work, bool for_ever) {
    (void)for_ever;
    pthread_mutex_lock(&sim.lock);
    char *data = sim_data(work->set.to, work->set.count * work->set.width);
    if (!data) sim_async(CUDA_ERROR_ILLEGAL_ADDRESS);
    pthread_mutex_unlock(&sim.lock);
    for (size_t i = 0; data && i < work->set.count; i++)
        memcpy(data + i * work->set.width, &work->set.value, work->set.width); /* little-endian, as the ABI is */
    return true;
}

static CUresult set(CUdeviceptr to, unsigned value, unsigned width, size_t count, CUstream handle) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (code) return code;
    if (to % width) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0) return CUDA_SUCCESS;
    if (count > SIZE_MAX / 4 || !sim_data(to, count * width)) return CUDA_ERROR_INVALID_VALUE;
    sim_work *work = sim_work_new(NODE_MEMSET, run_set);
    work->takes_place = true;
    work->set.to = to;
    work->set.value = value;
    work->set.width = width;
    work->set.count = count;
    return sim_submit(stream, work);
}

/* The synchronous fills do not wait for the end either (measured behind an unmet wait). */
#define FILL(bits, type)                                                                                             \
    EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {              \
        CALL_AS(CALL_WORK, "dst=0x%llx value=%u count=%zu stream=%p", to, value, count, (void *)stream);             \
        RETURN(set(to, value, bits / 8, count, stream));                                                             \
    }                                                                                                                \
    EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                                 \
        CALL_AS(CALL_WORK, "dst=0x%llx value=%u count=%zu", to, value, count);                                       \
        RETURN(set(to, value, bits / 8, count, CU_STREAM_LEGACY));                                                   \
    }                                                                                                                \
    EXPORT CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                            \
        CALL_AS(CALL_WORK, "dst=0x%llx value=%u count=%zu", to, value, count);                                       \
        RETURN(set(to, value, bits / 8, count, CU_STREAM_PER_THREAD));                                               \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)

/* ---- host functions */
static bool run_host(sim_work *work, bool for_ever) {
    (void)for_ever;
    sim_self.in_host_function = true;
    work->host.function(work->host.data);
    sim_self.in_host_function = false;
    return true;
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    CALL_AS(CALL_WORK, "stream=%p fn=%p data=%p", (void *)handle, (void *)(uintptr_t)function, data);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, true));
    REFUSE_IF(!function, CUDA_ERROR_INVALID_VALUE);
    sim_work *work = sim_work_new(NODE_HOST, run_host); /* takes no place: 5,000 return behind an unmet wait (measured) */
    work->host.function = function;
    work->host.data = data;
    RETURN(sim_submit(stream, work));
}
