/* External semaphores: objects of the host device, and inert objects in place of those of NvSci. On Linux, the objects of Windows
 * are inert, too. */
#include "sim.h"

#ifndef INFINITE
#define INFINITE 0xFFFFFFFFu
#endif

/* ---- inert objects */
typedef enum { INERT_BINARY, INERT_FENCE, INERT_MUTEX, INERT_SYNC } inert_kind;

/* In place of an NvSciSyncFence: the object, and the number of the signal. */
typedef struct { uint64_t object, number; } sync_fence;

static inert_kind kind_of(int type) {
    switch (type) {
        case SEM_OPAQUE_WIN32:
        case SEM_OPAQUE_WIN32_KMT: return INERT_BINARY;
        case SEM_KEYED_MUTEX:
        case SEM_KEYED_MUTEX_KMT: return INERT_MUTEX;
        case SEM_NVSCISYNC: return INERT_SYNC;
        default: return INERT_FENCE;
    }
}

/* ---- import */
static CUresult check(const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    bool has_handle = desc->handle.win32.handle, has_name = desc->handle.win32.name;
    if (desc->flags) return CUDA_ERROR_INVALID_VALUE;
    if (desc->type >= SEM_TIMELINE_FD && sim.version < 11020) return CUDA_ERROR_INVALID_VALUE;
    if (desc->type >= SEM_D3D11_FENCE && sim.version < 10020) return CUDA_ERROR_INVALID_VALUE;
    switch (desc->type) {
        case SEM_OPAQUE_FD: break;
        case SEM_TIMELINE_FD:
            if (desc->handle.fd < 0) return CUDA_ERROR_INVALID_VALUE; /* measured; OPAQUE_FD gives UNKNOWN */
            break;
        case SEM_NVSCISYNC:
            if (!desc->handle.nvsci) return CUDA_ERROR_INVALID_VALUE;
            break;
        case SEM_OPAQUE_WIN32_KMT:
        case SEM_KEYED_MUTEX_KMT:
            if (has_name) return CUDA_ERROR_INVALID_VALUE;
            /* fall through */
        case SEM_OPAQUE_WIN32:
        case SEM_D3D12_FENCE:
        case SEM_D3D11_FENCE:
        case SEM_KEYED_MUTEX:
        case SEM_TIMELINE_WIN32:
            if (has_handle == has_name) return CUDA_ERROR_INVALID_VALUE;
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    bool is_fd = desc->type == SEM_OPAQUE_FD || desc->type == SEM_TIMELINE_FD;
    bool here = sim.tegra ? is_fd || desc->type == SEM_NVSCISYNC : is_fd != sim.windows;
    return here ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

#ifdef _WIN32
/* The object decides, not the type, as on Linux: OPAQUE_WIN32 takes a timeline. The caller keeps its handle. */
static CUresult take(sim_semaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    bool keyed = desc->type == SEM_KEYED_MUTEX || desc->type == SEM_KEYED_MUTEX_KMT;
    bool kmt = desc->type == SEM_OPAQUE_WIN32_KMT || desc->type == SEM_KEYED_MUTEX_KMT;
    HANDLE own = sim_nt_open(desc->handle.win32.handle, desc->handle.win32.name, kmt);
    if (!own) return CUDA_ERROR_UNKNOWN;
    sim_mutex *mutex = keyed ? sim_mutex_open(own) : NULL;
    if (mutex) {
        semaphore->payload.inert = calloc(1, sizeof *semaphore->payload.inert);
        semaphore->payload.inert->kind = INERT_MUTEX;
        semaphore->payload.inert->own = mutex;
        semaphore->payload.inert->users = 1;
    } else if (!keyed) {
        semaphore->payload.timeline = xsem_host_timeline_open(own);
        bool fence = desc->type == SEM_D3D12_FENCE || desc->type == SEM_D3D11_FENCE;
        if (!semaphore->payload.timeline && !fence && xsem_host_recognise(own) == XSEM_HOST_BINARY) semaphore->payload.binary = own;
    }
    if (semaphore->payload.binary != own) CloseHandle(own);
    bool found = mutex || semaphore->payload.timeline || semaphore->payload.binary;
    return found ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
#else
/* The fd decides, not the type: the driver does not check the type. */
static CUresult take(sim_semaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    if (!sim_payload_take(&semaphore->payload, desc->handle.fd)) return CUDA_ERROR_UNKNOWN; /* the fd stays open */
    close(desc->handle.fd);
    return CUDA_SUCCESS;
}
#endif

static bool is_inert(int type) {
#ifdef _WIN32
    return type == SEM_NVSCISYNC;
#else
    return sim.windows || type == SEM_NVSCISYNC;
#endif
}

EXPORT CUresult cuImportExternalSemaphore(CUexternalSemaphore *out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    const void *wide = desc && sim.windows && desc->type != SEM_NVSCISYNC ? desc->handle.win32.name : NULL;
    CALL_AS(CALL_WORK, "desc=%s%s", sim_hex(desc, sizeof *desc), sim_name(wide));
    sim_context *context;
    TRY(sim_current(&context));
    TRY(sim_unsafe());
    REFUSE_IF(!out || !desc, CUDA_ERROR_INVALID_VALUE);
    TRY(check(desc));
    sim_semaphore made = {.payload = SIM_NO_PAYLOAD, .type = desc->type};
    if (is_inert(desc->type)) made.payload.inert = sim_inert_of(kind_of(desc->type), desc->handle.win32.handle, sim_name(wide));
    else TRY(take(&made, desc));
    sim_semaphore *semaphore = sim_new(SIM_SEMAPHORE, sizeof *semaphore);
    made.object = semaphore->object;
    made.device = context->device;
    *semaphore = made;
    *out = semaphore;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
    CALL_AS(CALL_WORK, "extSem=%p", (void *)handle);
    TRY(sim_unsafe());
    REFUSE_IF(!handle, CUDA_ERROR_INVALID_VALUE);
    sim_semaphore *semaphore = sim_known(handle, SIM_SEMAPHORE);
    if (!semaphore) sim_abort("this is not an external semaphore");
    if (!semaphore->object.alive || semaphore->destroying) sim_abort("this external semaphore is destroyed a second time");
    semaphore->destroying = true;
    /* Measured: blocks while a wait or signal of it is queued. Even an idle one blocks behind any unmet wait. */
    sim_hold_others();
    sim_drain_device(semaphore->device);
    while (semaphore->queued) pthread_cond_wait(&sim.changed, &sim.lock);
    sim_let_others();
    semaphore->object.alive = false;
#ifdef _WIN32
    if (semaphore->payload.inert && semaphore->payload.inert->own) sim_mutex_close(semaphore->payload.inert->own);
#endif
    sim_payload_close(&semaphore->payload);
    RETURN(CUDA_SUCCESS);
}

/* ---- signal and wait, on a worker thread */
static void signal_inert(sim_inert *inert, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params) {
    pthread_mutex_lock(&sim.lock);
    inert->signalled = true;
    inert->value = params->params.fence_value; /* of an NvSciSync object: the number of the signal */
    inert->key = params->params.mutex_key;
    inert->held = false;
#ifdef _WIN32
    if (inert->own) sim_mutex_release(inert->own, params->params.mutex_key);
#endif
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

static bool take_inert(sim_inert *inert, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params) {
    switch (inert->kind) {
        case INERT_SYNC:
        case INERT_FENCE: return inert->value >= params->params.fence_value;
        case INERT_BINARY:
            if (!inert->signalled) return false;
            inert->signalled = false;
            return true;
        case INERT_MUTEX:
#ifdef _WIN32
            if (inert->own) return sim_mutex_try(inert->own, params->params.mutex_key);
#endif
            if (inert->held || inert->key != params->params.mutex_key) return false;
            inert->held = true;
            return true;
    }
    return true;
}

static bool wait_inert(sim_batch *batch, sim_inert *inert, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                       bool for_ever) {
    bool met = false, over = false;
    unsigned timeout_ms = params->params.mutex_timeout_ms;
    bool limited = inert->kind == INERT_MUTEX && timeout_ms != INFINITE;
    if (limited && !batch->deadline_ns) batch->deadline_ns = xsem_host_now_ns() + (int64_t)timeout_ms * 1000000;
    pthread_mutex_lock(&sim.lock);
    while (!(met = take_inert(inert, params)) && !(over = limited && xsem_host_now_ns() >= batch->deadline_ns) && for_ever) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&sim.changed, &sim.lock, &until);
    }
    if (over && !met) sim_async(CUDA_ERROR_TIMEOUT);
    pthread_mutex_unlock(&sim.lock);
    if (met || over) batch->deadline_ns = 0;
    return met || over;
}

static bool run_batch(sim_work *work, bool for_ever) {
    sim_batch *batch = &work->batch;
    int64_t limit_ns = for_ever ? -1 : 0;
    for (; batch->next < batch->count; batch->next++) {
        sim_semaphore *semaphore = batch->semaphores[batch->next];
        const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params = &batch->params[batch->next];
        uint64_t value = params->params.fence_value;
        if (!semaphore->object.alive) {
            sim_note("# a graph uses the destroyed semaphore %p", (void *)semaphore);
        } else if (batch->is_signal) {
            if (semaphore->payload.inert) signal_inert(semaphore->payload.inert, params);
            else sim_payload_signal(&semaphore->payload, value);
        } else if (semaphore->payload.inert) {
            if (!wait_inert(batch, semaphore->payload.inert, params, for_ever)) return false;
        } else if (!sim_payload_wait(&semaphore->payload, value, limit_ns)) {
            return false;
        }
    }
    return true;
}

/* ---- batches */
static void drop_batch(sim_work *work) {
    for (unsigned i = 0; work->batch.counted && i < work->batch.count; i++) work->batch.semaphores[i]->queued--;
    free(work->batch.semaphores);
    free(work->batch.params);
}

static void *duplicate(const void *bytes, size_t size) { return memcpy(malloc(size), bytes, size); }

static sim_work *copy_batch(const sim_work *work) {
    sim_work *copy = duplicate(work, sizeof *work);
    copy->batch.semaphores = duplicate(work->batch.semaphores, work->batch.count * sizeof *copy->batch.semaphores);
    copy->batch.params = duplicate(work->batch.params, work->batch.count * sizeof *copy->batch.params);
    copy->batch.counted = false;
    copy->batch.next = 0;
    return copy;
}

void sim_batch_count(sim_work *work) {
    if (work->run != run_batch) return;
    work->batch.counted = true;
    for (unsigned i = 0; i < work->batch.count; i++) work->batch.semaphores[i]->queued++;
}

CUresult sim_batch_work(sim_work **out, bool is_signal, const CUexternalSemaphore *semaphores, const void *params,
                        unsigned count) {
    if (count == 0 || !semaphores || !params) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        sim_semaphore *semaphore = sim_known(semaphores[i], SIM_SEMAPHORE);
        if (!semaphore) sim_abort("this is not an external semaphore");
        if (!semaphore->object.alive) return CUDA_ERROR_INVALID_VALUE; /* measured for a wait */
    }
    sim_work *work = sim_work_new(is_signal ? NODE_SIGNAL : NODE_WAIT, run_batch);
    work->takes_place = true;
    work->copy_of = copy_batch;
    work->drop = drop_batch;
    work->batch.is_signal = is_signal;
    work->waits = !is_signal;
    work->batch.count = count;
    work->batch.semaphores = duplicate(semaphores, count * sizeof *semaphores);
    work->batch.params = duplicate(params, count * sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS));
    *out = work;
    return CUDA_SUCCESS;
}

/* "This API sets the fence": the call sets it to its future signal. A wait reads it when it is called. */
static CUresult set_fences(sim_batch *batch) {
    for (unsigned i = 0; i < batch->count; i++) {
        sim_inert *inert = batch->semaphores[i]->payload.inert;
        if (!inert || inert->kind != INERT_SYNC) continue;
        sync_fence *fence = (sync_fence *)(uintptr_t)batch->params[i].params.nvsci;
        if (!fence) return CUDA_ERROR_INVALID_VALUE;
        if (batch->is_signal) *fence = (sync_fence){(uintptr_t)inert->handle, ++inert->promised};
        else if (fence->object != (uintptr_t)inert->handle) return CUDA_ERROR_INVALID_VALUE;
        batch->params[i].params.fence_value = fence->number;
    }
    return CUDA_SUCCESS;
}

static CUresult append(bool is_signal, const CUexternalSemaphore *semaphores, const void *params, unsigned count,
                       CUstream handle) {
    sim_stream *stream;
    sim_work *work;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (!code) code = sim_batch_work(&work, is_signal, semaphores, params, count);
    if (!code) code = set_fences(&work->batch);
    if (code) return code;
    return sim_submit(stream, work);
}

EXPORT CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                                const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count,
                                                CUstream stream) {
    CALL_AS(CALL_WORK, "extSem=%p count=%u stream=%p params=%s", count && semaphores ? (void *)semaphores[0] : NULL, count,
            (void *)stream, sim_hex(count ? params : NULL, count * sizeof *params));
    RETURN(append(true, semaphores, params, count, stream));
}

EXPORT CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned count,
                                              CUstream stream) {
    CALL_AS(CALL_WORK, "extSem=%p count=%u stream=%p params=%s", count && semaphores ? (void *)semaphores[0] : NULL, count,
            (void *)stream, sim_hex(count ? params : NULL, count * sizeof *params));
    RETURN(append(false, semaphores, params, count, stream));
}
