/* Actions of operations: fills, host functions, words; and the functions that append them. Copies are in copy.c, semaphores in
 * semaphore.c. */
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

/* ---- words: a wait that needs no semaphore */
static bool run_word(sim_work *work, bool for_ever) {
    pthread_mutex_lock(&sim.lock);
    void *at = sim_data(work->word.at, work->word.width);
    if (!at) sim_async(CUDA_ERROR_ILLEGAL_ADDRESS);
    pthread_mutex_unlock(&sim.lock);
    if (!at) return true;
    bool wide = work->word.width == 8;
    if (work->word.write) {
        if (wide) atomic_store((_Atomic uint64_t *)at, work->word.value);
        else atomic_store((_Atomic uint32_t *)at, (uint32_t)work->word.value);
        return true;
    }
    do {
        uint64_t now = wide ? atomic_load((_Atomic uint64_t *)at) : atomic_load((_Atomic uint32_t *)at);
        uint64_t wanted = work->word.value;
        bool met = false;
        switch (work->word.flags & 3) {
            case 0: met = wide ? (int64_t)(now - wanted) >= 0 : (int32_t)((uint32_t)now - (uint32_t)wanted) >= 0; break;
            case 1: met = now == wanted; break;
            case 2: met = (now & wanted) != 0; break;
            default: met = ~(now | wanted) != 0;
        }
        if (met) return true;
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
    } while (for_ever);
    return false;
}

static CUresult word(CUstream handle, CUdeviceptr at, uint64_t value, unsigned width, unsigned flags, bool write) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (code) return code;
    if (at % width || !sim_data(at, width)) return CUDA_ERROR_INVALID_VALUE;
    sim_work *work = sim_work_new(12, run_word); /* CU_GRAPH_NODE_TYPE_BATCH_MEM_OP */
    work->takes_place = true;
    work->word.at = at;
    work->word.value = value;
    work->word.width = width;
    work->word.flags = flags;
    work->word.write = write;
    work->waits = !write;
    return sim_submit(stream, work);
}

#define WORD(bits, type)                                                                                                \
    EXPORT CUresult cuStreamWaitValue##bits##_v2(CUstream stream, CUdeviceptr at, type value, unsigned flags) {         \
        CALL_AS(CALL_WORK, "stream=%p addr=0x%llx value=%llu flags=%u", (void *)stream, at, (unsigned long long)value, flags); \
        RETURN(word(stream, at, value, bits / 8, flags, false));                                                        \
    }                                                                                                                   \
    EXPORT CUresult cuStreamWriteValue##bits##_v2(CUstream stream, CUdeviceptr at, type value, unsigned flags) {        \
        CALL_AS(CALL_WORK, "stream=%p addr=0x%llx value=%llu flags=%u", (void *)stream, at, (unsigned long long)value, flags); \
        RETURN(word(stream, at, value, bits / 8, flags, true));                                                         \
    }
WORD(32, uint32_t)
WORD(64, uint64_t)
