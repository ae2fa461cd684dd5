/* External semaphores: objects of the host device, and inert objects in place of those of NvSci. On Linux, the objects of Windows
 * are inert, too. */
#include "sim.h"

#define FD_FROM 700 /* eventfds are kept out of the way of the numbers that programs look at */
#ifndef INFINITE
#define INFINITE 0xFFFFFFFFu
#endif

/* ---- inert objects: one payload for each handle or name while it is imported */
typedef enum { INERT_BINARY, INERT_FENCE, INERT_MUTEX, INERT_SYNC } inert_kind;

struct sim_payload {
    sim_payload *next;
    inert_kind kind;
    const void *handle;
    char name[1100];
    int users;
    bool signalled, held;
    uint64_t value, key, promised;
#ifdef _WIN32
    sim_mutex *mutex;
#endif
};

/* In place of an NvSciSyncFence: the object, and the number of the signal. */
typedef struct { uint64_t object, number; } sync_fence;

static sim_payload *payloads;

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

static sim_payload *payload_of(int type, const void *handle, const char *name) {
    for (sim_payload *each = payloads; each; each = each->next)
        if (each->kind == kind_of(type) && each->handle == handle && strcmp(each->name, name) == 0) {
            each->users++;
            return each;
        }
    sim_payload *made = calloc(1, sizeof *made);
    made->kind = kind_of(type);
    made->handle = handle;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->users = 1;
    made->next = payloads;
    return payloads = made;
}

static void let_go(sim_payload *payload) {
    if (--payload->users) return;
#ifdef _WIN32
    if (payload->mutex) sim_mutex_close(payload->mutex);
#endif
    for (sim_payload **at = &payloads; *at; at = &(*at)->next)
        if (*at == payload) {
            *at = payload->next;
            break;
        }
    free(payload);
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

/* A fault: the object of the last destroyed semaphore, in place of this one. */
static sim_semaphore stale = {.binary = NO_HANDLE};

static void make_stale(sim_semaphore *semaphore) {
    if (semaphore->timeline && stale.timeline) {
        xsem_host_timeline_close(semaphore->timeline);
        semaphore->timeline = stale.timeline;
        stale.timeline = NULL;
    }
    if (semaphore->binary != NO_HANDLE && stale.binary != NO_HANDLE) {
        sim_close_handle(semaphore->binary);
        semaphore->binary = stale.binary;
        stale.binary = NO_HANDLE;
    }
}

static void keep_stale(sim_semaphore *semaphore) {
    if (semaphore->timeline && !stale.timeline) {
        stale.timeline = semaphore->timeline;
        semaphore->timeline = NULL;
    }
    if (semaphore->binary != NO_HANDLE && stale.binary == NO_HANDLE) {
        stale.binary = semaphore->binary;
        semaphore->binary = NO_HANDLE;
    }
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
        semaphore->inert = calloc(1, sizeof *semaphore->inert);
        semaphore->inert->kind = INERT_MUTEX;
        semaphore->inert->mutex = mutex;
        semaphore->inert->users = 1;
    } else if (!keyed) {
        semaphore->timeline = xsem_host_timeline_open(own);
        bool fence = desc->type == SEM_D3D12_FENCE || desc->type == SEM_D3D11_FENCE;
        if (!semaphore->timeline && !fence && xsem_host_recognise(own) == XSEM_HOST_BINARY) semaphore->binary = own;
    }
    if (FAULTY(import_resets) && semaphore->timeline) atomic_store(&semaphore->timeline->page->value, 0);
    if (FAULTY(import_resets) && semaphore->binary) xsem_host_binary_wait(semaphore->binary, 0);
    if (FAULTY(stale_after_reimport)) make_stale(semaphore);
    if (semaphore->binary != own && !FAULTY(fd_leaked)) CloseHandle(own);
    bool found = mutex || semaphore->timeline || semaphore->binary || FAULTY(error_swallowed);
    return found ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
#else
/* A fault: whether the object was imported before, by its file. */
static bool seen_before(int fd) {
    static ino_t seen[4096];
    static size_t count;
    struct stat status;
    if (fstat(fd, &status) != 0) return false;
    for (size_t i = 0; i < count; i++)
        if (seen[i] == status.st_ino) return true;
    if (count < sizeof seen / sizeof *seen) seen[count++] = status.st_ino;
    return false;
}

/* The fd decides, not the type: the driver does not check the type. */
static CUresult take(sim_semaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
    int fd = desc->handle.fd;
    switch (xsem_host_recognise(fd)) {
        case XSEM_HOST_TIMELINE: {
            void *page = mmap(NULL, XSEM_HOST_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (page == MAP_FAILED) return CUDA_ERROR_UNKNOWN;
            semaphore->timeline = page;
            if (FAULTY(import_resets)) atomic_store(&semaphore->timeline->value, 0);
            if (FAULTY(second_import_refused) && seen_before(fd)) return CUDA_ERROR_UNKNOWN;
            break;
        }
        case XSEM_HOST_BINARY:
            semaphore->binary = fcntl(fd, F_DUPFD_CLOEXEC, FD_FROM);
            if (semaphore->binary < 0) return CUDA_ERROR_UNKNOWN;
            if (FAULTY(import_resets)) xsem_host_binary_wait(semaphore->binary, 0);
            break;
        default:
            if (FAULTY(error_swallowed)) break;
            if (FAULTY(fd_closed_on_failure)) close(fd);
            return CUDA_ERROR_UNKNOWN; /* the fd stays open */
    }
    if (FAULTY(stale_after_reimport)) make_stale(semaphore);
    if (!FAULTY(fd_leaked)) close(fd);
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
    sim_semaphore made = {.binary = NO_HANDLE, .type = desc->type};
    if (is_inert(desc->type)) made.inert = payload_of(desc->type, desc->handle.win32.handle, sim_name(wide));
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
    if (FAULTY(stale_after_reimport)) keep_stale(semaphore);
    if (FAULTY(destroy_leaks)) sim_leak();
    if (semaphore->timeline) xsem_host_timeline_close(semaphore->timeline);
    if (semaphore->binary != NO_HANDLE) sim_close_handle(semaphore->binary);
    if (semaphore->inert) let_go(semaphore->inert);
    RETURN(CUDA_SUCCESS);
}

/* ---- signal and wait, on a worker thread */
static void signal_inert(sim_payload *payload, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params) {
    pthread_mutex_lock(&sim.lock);
    payload->signalled = true;
    payload->value = params->params.fence_value; /* of an NvSciSync object: the number of the signal */
    payload->key = params->params.mutex_key;
    payload->held = false;
#ifdef _WIN32
    if (payload->mutex) sim_mutex_release(payload->mutex, params->params.mutex_key);
#endif
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

static bool take_inert(sim_payload *payload, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params) {
    switch (payload->kind) {
        case INERT_SYNC:
        case INERT_FENCE: return payload->value >= params->params.fence_value;
        case INERT_BINARY:
            if (!payload->signalled) return false;
            payload->signalled = false;
            return true;
        case INERT_MUTEX:
#ifdef _WIN32
            if (payload->mutex) return sim_mutex_try(payload->mutex, params->params.mutex_key);
#endif
            if (payload->held || payload->key != params->params.mutex_key) return false;
            payload->held = true;
            return true;
    }
    return true;
}

static bool wait_inert(sim_batch *batch, sim_payload *payload, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                       bool for_ever) {
    bool met = false, over = false;
    unsigned timeout_ms = params->params.mutex_timeout_ms;
    bool limited = payload->kind == INERT_MUTEX && timeout_ms != INFINITE;
    if (limited && !batch->deadline_ns) batch->deadline_ns = xsem_host_now_ns() + (int64_t)timeout_ms * 1000000;
    pthread_mutex_lock(&sim.lock);
    while (!(met = take_inert(payload, params)) && !(over = limited && xsem_host_now_ns() >= batch->deadline_ns) && for_ever) {
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
            if (FAULTY(signal_lost)) continue;
            if (FAULTY(crashes)) abort();
            if (semaphore->timeline) xsem_host_timeline_signal(semaphore->timeline, value + FAULTY(signal_one_more));
            else if (semaphore->inert) signal_inert(semaphore->inert, params);
            else xsem_host_binary_signal(semaphore->binary);
        } else if (FAULTY(wait_ignored)) {
            continue;
        } else if (semaphore->timeline) {
            if (FAULTY(wait_one_early) && value) value--;
            if (FAULTY(wait_one_late) && value < UINT64_MAX) value++;
            if (FAULTY(value_of_32_bits)) value &= 0xFFFFFFFFu;
            if (!xsem_host_timeline_wait(semaphore->timeline, value, limit_ns)) return false;
        } else if (semaphore->inert) {
            if (!wait_inert(batch, semaphore->inert, params, for_ever)) return false;
        } else if (xsem_host_binary_wait(semaphore->binary, limit_ns) != 1) {
            return false;
        } else if (FAULTY(binary_not_reset)) {
            xsem_host_binary_signal(semaphore->binary);
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
    if (FAULTY(values_swapped))
        for (unsigned i = 0; i < count; i++)
            work->batch.params[i] = ((const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)params)[count - 1 - i];
    if (is_signal ? FAULTY(half_the_signals) : FAULTY(half_the_waits)) work->batch.count = (count + 1) / 2;
    *out = work;
    return CUDA_SUCCESS;
}

/* "This API sets the fence": the call sets it to its future signal. A wait reads it when it is called. */
static CUresult set_fences(sim_batch *batch) {
    for (unsigned i = 0; i < batch->count; i++) {
        sim_payload *payload = batch->semaphores[i]->inert;
        if (!payload || payload->kind != INERT_SYNC) continue;
        sync_fence *fence = (sync_fence *)(uintptr_t)batch->params[i].params.nvsci;
        if (!fence) return CUDA_ERROR_INVALID_VALUE;
        if (batch->is_signal) *fence = (sync_fence){(uintptr_t)payload->handle, ++payload->promised};
        else if (fence->object != (uintptr_t)payload->handle) return CUDA_ERROR_INVALID_VALUE;
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
    if (FAULTY(signal_overtakes) && is_signal && !stream->capture) {
        sim_overtake(work);
        return CUDA_SUCCESS;
    }
    code = sim_submit(stream, work);
    if (FAULTY(append_blocks) && !is_signal && !code && !stream->capture) sim_sleep_until(sim_record(stream));
    return code;
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
