/* External semaphores: objects of the host device, and inert objects in place of those of Windows: keyed mutexes, objects with KMT
 * handles, and, on Linux, names and handles of other things than objects of the host. */
#include "work.h"

#define ALL_FLAGS 0x1ffu
#define INERT_FLAGS                                                                                          \
    (ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32_KMT | ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX |          \
     ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX_KMT)

static bool is_timeline(uint32_t type) {
    return type & (ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D12_FENCE | ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D11_FENCE |
                   ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX | ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX_KMT |
                   ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_WIN32);
}

/* ---- import */
static const ze_base_desc_t *structure(const ze_external_semaphore_ext_desc_t *desc) {
    const ze_base_desc_t *each = desc->pNext;
    /* Intel's driver reads only the first structure. */
    while (!sim.intel && each && each->stype != ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_FD_EXT_DESC &&
           each->stype != ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WIN32_EXT_DESC)
        each = each->pNext;
    return each;
}

#ifdef _WIN32
/* KMT handles and keyed mutexes are inert. */
static ze_result_t take_win32(sim_semaphore *semaphore, const ze_external_semaphore_win32_ext_desc_t *desc) {
    wchar_t name[300];
    if (semaphore->type & INERT_FLAGS) {
        semaphore->payload.inert = sim_inert_of(is_timeline(semaphore->type), desc->handle, desc->name ? desc->name : "");
        return ZE_RESULT_SUCCESS;
    }
    if (desc->name) MultiByteToWideChar(CP_UTF8, 0, desc->name, -1, name, 300);
    HANDLE own = sim_nt_open(desc->handle, desc->name ? name : NULL);
    xsem_host_kind kind = own ? xsem_host_recognise(own) : XSEM_HOST_UNKNOWN;
    if (!is_timeline(semaphore->type) && kind == XSEM_HOST_BINARY) {
        semaphore->payload.binary = own;
        return ZE_RESULT_SUCCESS;
    }
    if (is_timeline(semaphore->type) && kind == XSEM_HOST_TIMELINE) semaphore->payload.timeline = xsem_host_timeline_open(own);
    if (own) CloseHandle(own);
    return semaphore->payload.timeline ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t take_fd(sim_semaphore *semaphore, int fd) {
    (void)semaphore, (void)fd;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
#else
/* The fd of an object of the host stands for an NT handle; the caller keeps it. */
static ze_result_t take_win32(sim_semaphore *semaphore, const ze_external_semaphore_win32_ext_desc_t *desc) {
    int fd = (int)(intptr_t)desc->handle;
    xsem_host_kind wanted = is_timeline(semaphore->type) ? XSEM_HOST_TIMELINE : XSEM_HOST_BINARY;
    if (desc->handle && !(semaphore->type & INERT_FLAGS) && xsem_host_recognise(fd) == wanted)
        return sim_payload_take(&semaphore->payload, fd) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    semaphore->payload.inert = sim_inert_of(is_timeline(semaphore->type), desc->handle, desc->name ? desc->name : "");
    return ZE_RESULT_SUCCESS;
}

/* The fd must match the type. NEO gives the same code for every fd that it cannot take. */
static ze_result_t take_fd(sim_semaphore *semaphore, int fd) {
    ze_result_t code = sim.intel ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    xsem_host_kind wanted = semaphore->type == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD ? XSEM_HOST_BINARY : XSEM_HOST_TIMELINE;
    xsem_host_kind kind = xsem_host_recognise(fd);
    if (kind == wanted || (sim.syncobjs && kind == XSEM_HOST_TIMELINE))
        code = sim_payload_take(&semaphore->payload, fd) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    bool closes = code ? sim.fd_fate == FD_CLOSED : sim.fd_fate != FD_OPEN;
    if (closes && !(sim.intel && fd == 0)) close(fd);
    return code;
}
#endif

static ze_result_t import(sim_semaphore *semaphore, const ze_external_semaphore_ext_desc_t *desc) {
    const ze_base_desc_t *found = structure(desc);
    if (!found || (desc->flags & (desc->flags - 1)) || desc->flags == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (desc->flags & ~ALL_FLAGS) return sim.intel ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_ERROR_INVALID_ENUMERATION;
    bool is_fd = desc->flags == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD || desc->flags == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD;
    semaphore->type = desc->flags;
    if (found->stype == ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_FD_EXT_DESC) {
        sim_note("# import fd=%d flags=0x%x", ((const ze_external_semaphore_fd_ext_desc_t *)found)->fd, desc->flags);
        if (!is_fd || sim.windows) return is_fd || sim.intel ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_INVALID_ARGUMENT;
        return take_fd(semaphore, ((const ze_external_semaphore_fd_ext_desc_t *)found)->fd);
    }
    if (found->stype != ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WIN32_EXT_DESC) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    const ze_external_semaphore_win32_ext_desc_t *win32 = (const void *)found;
    sim_note("# import handle=%p name=%s flags=0x%x", win32->handle, win32->name ? win32->name : "", desc->flags);
    if (!sim.windows) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (is_fd || (win32->handle == NULL) == (win32->name == NULL)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (sim.intel) { /* NEO on Windows */
        bool refused = (desc->flags & INERT_FLAGS) || (desc->flags == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D11_FENCE && sim.no_d3d11_fence);
        if (refused) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        if (desc->flags == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32 && !win32->handle)
            sim_abort("NEO maps the null handle of an opaque semaphore that has only a name");
    }
    return take_win32(semaphore, win32);
}

ze_result_t zeDeviceImportExternalSemaphoreExt(ze_device_handle_t device_handle, const ze_external_semaphore_ext_desc_t *desc,
                                               ze_external_semaphore_ext_handle_t *out) {
    CALL("device=%p desc=%s", (void *)device_handle, sim_hex(desc, sizeof *desc));
    sim_device *device;
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    sim_semaphore made = {.payload = SIM_NO_PAYLOAD};
    TRY(import(&made, desc));
    sim_semaphore *semaphore = sim_new(SIM_SEMAPHORE, sizeof *semaphore);
    made.object = semaphore->object;
    *semaphore = made;
    *out = semaphore;
    sim_note("# imported semaphore=%p", (void *)semaphore);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceReleaseExternalSemaphoreExt(ze_external_semaphore_ext_handle_t handle) {
    CALL("semaphore=%p", (void *)handle);
    sim_semaphore *semaphore;
    TRY(sim_get(handle, SIM_SEMAPHORE, &semaphore));
    if (semaphore->queued) sim_abort("this semaphore is released while a wait or a signal of it is queued");
    semaphore->object.alive = false;
    sim_payload_close(&semaphore->payload);
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- signal and wait, on a worker */
void sim_semaphore_signal(sim_semaphore *semaphore, uint64_t value) {
    if (!sim.controller) pthread_mutex_lock(&sim.lock); /* the controller has it */
    /* NEO on Windows: after a signal, too, every wait on the handle passes. */
    if (sim.windows) semaphore->satisfied = true;
    if (semaphore->payload.inert) {
        semaphore->payload.inert->signalled = true;
        semaphore->payload.inert->value = value;
        pthread_cond_broadcast(&sim.changed);
    } else {
        sim_payload_signal(&semaphore->payload, value);
    }
    if (!sim.controller) pthread_mutex_unlock(&sim.lock);
    atomic_fetch_add(&sim.counters->signals, 1);
}

static bool inert_is_met(const sim_inert *inert, uint64_t value) {
    return inert->kind ? inert->value >= value : inert->signalled;
}

#ifdef _WIN32
/* Each wait resets an event: SIMZE_NO_RESET has no effect. */
static bool pass_on(HANDLE event) { return xsem_host_binary_wait(event, 0) == 1; }
static bool wait_without_reset(sim_semaphore *semaphore) { return xsem_host_binary_wait(semaphore->payload.binary, -1) == 1; }
#else
/* The counter of an eventfd is the number of signals since its reset. The lower half holds up to 2^32 signals. The upper half counts
 * the signals that waits of this mode have consumed. For other processes the eventfd is signalled before and after. */
static uint64_t counter_of(int fd) {
    char path[64], line[256];
    unsigned long long counter = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info && fgets(line, sizeof line, info)) sscanf(line, "eventfd-count: %llx", &counter);
    if (info) fclose(info);
    return counter;
}

/* True if a signal existed that no wait had consumed. Called with the lock, because of a second wait. */
static bool pass_on(int fd) {
    uint64_t counter = counter_of(fd), signals = counter & 0xFFFFFFFFu, passed = counter >> 32;
    if (signals <= passed) return false;
    uint64_t add = (signals - passed) << 32;
    return write(fd, &add, sizeof add) == (ssize_t)sizeof add;
}

/* Does not reset. True if a signal existed that no wait had consumed. */
static bool wait_without_reset(sim_semaphore *semaphore) {
    struct pollfd poller = {semaphore->payload.binary, POLLIN, 0};
    while (poll(&poller, 1, -1) < 0 && errno == EINTR) {
    }
    pthread_mutex_lock(&sim.lock);
    bool met = pass_on(semaphore->payload.binary);
    pthread_mutex_unlock(&sim.lock);
    return met;
}
#endif

static bool is_met(sim_semaphore *semaphore, uint64_t value) {
    if (semaphore->payload.timeline) return xsem_host_timeline_value(semaphore->payload.timeline) >= value;
    if (semaphore->payload.inert) return inert_is_met(semaphore->payload.inert, value);
    return sim.no_reset ? pass_on(semaphore->payload.binary) : sim_payload_wait(&semaphore->payload, value, 0);
}

static bool wait_inert(sim_inert *inert, uint64_t value) {
    pthread_mutex_lock(&sim.lock);
    while (!inert_is_met(inert, value)) pthread_cond_wait(&sim.changed, &sim.lock);
    if (!inert->kind && !sim.no_reset) inert->signalled = false;
    pthread_mutex_unlock(&sim.lock);
    return true;
}

/* A binary semaphore that no wait resets stays signalled, and every later wait passes. */
static bool stays_signalled(const sim_semaphore *semaphore) {
#ifdef _WIN32
    (void)semaphore;
    return false;
#else
    struct pollfd poller = {semaphore->payload.binary, POLLIN, 0};
    return sim.no_reset && !semaphore->payload.timeline && !semaphore->payload.inert && poll(&poller, 1, 0) == 1;
#endif
}

bool sim_semaphore_passes(sim_semaphore *semaphore, uint64_t value) {
    bool signalled = stays_signalled(semaphore); /* first: another process can signal it between the two */
    bool met = is_met(semaphore, value);
    if (!met && !(sim.sticky && semaphore->satisfied) && !signalled) return false;
    if (!met) {
        atomic_fetch_add(&sim.counters->let_through, 1);
        sim_note("# let through: semaphore=%p value=%llu", (void *)semaphore, (unsigned long long)value);
    }
    semaphore->satisfied = true;
    atomic_fetch_add(&sim.counters->waits, 1);
    return true;
}

void sim_semaphore_wait(sim_semaphore *semaphore, uint64_t value) {
    bool met = true;
    pthread_mutex_lock(&sim.lock);
    sim.blocked++;
    bool passes = sim.sticky && semaphore->satisfied;
    if (passes) met = is_met(semaphore, value);
    pthread_mutex_unlock(&sim.lock);
    if (passes) {
        /* As NEO's controller: a wait on the handle was met once, so it is not checked again. */
    } else if (semaphore->payload.inert) {
        met = wait_inert(semaphore->payload.inert, value);
    } else if (sim.no_reset && !semaphore->payload.timeline) {
        met = wait_without_reset(semaphore);
    } else {
        sim_payload_wait(&semaphore->payload, value, -1);
    }
    if (!met) {
        atomic_fetch_add(&sim.counters->let_through, 1);
        sim_note("# let through: semaphore=%p value=%llu", (void *)semaphore, (unsigned long long)value);
    }
    pthread_mutex_lock(&sim.lock);
    semaphore->satisfied = true;
    sim.blocked--;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
    atomic_fetch_add(&sim.counters->waits, 1);
}

#ifndef _WIN32
/* With host functions, the end of the process waits for the workers, which wait for semaphores without a limit. */
__attribute__((destructor)) static void join_workers(void) {
    pthread_mutex_lock(&sim.lock);
    while (sim.host_functions && sim.blocked) pthread_cond_wait(&sim.changed, &sim.lock);
    pthread_mutex_unlock(&sim.lock);
}
#endif

/* ---- batches */
/* The kernel refuses a wait of a syncobj that has no fence, and Intel's driver takes the refusal for "not yet". So a wait for 0 is met
 * by the first signal only (SIMZE_WAIT_FOR_0). */
static uint64_t wanted(const sim_semaphore *semaphore, sim_what what, uint64_t value) {
    if (semaphore->type == ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD && semaphore->payload.timeline) return 1; /* a syncobj */
    return what == DO_WAIT && sim.no_wait_for_0 && !sim.windows && semaphore->payload.timeline && value == 0 ? 1 : value;
}

static ze_result_t append(ze_command_list_handle_t handle, sim_what what, uint32_t count,
                          ze_external_semaphore_ext_handle_t *semaphores, const ze_external_semaphore_wait_params_ext_t *params,
                          ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    sim_list *list;
    sim_semaphore *found;
    ze_result_t code = sim_list_open(handle, &list);
    if (code) return code;
    if (!list->lane && !sim.host_functions) return sim.intel ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (sim.controller) sim_controller_lock();
    if (count && (!semaphores || !params)) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    for (uint32_t i = 0; i < count; i++) {
        sim_note("# semaphore=%p value=%llu", (void *)semaphores[i], (unsigned long long)params[i].value);
        if ((code = sim_get(semaphores[i], SIM_SEMAPHORE, &found))) return code;
        int stype = what == DO_WAIT ? ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_WAIT_PARAMS_EXT
                                    : ZE_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_EXT;
        if (!sim.intel && params[i].stype != stype) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((code = sim_events(waits, wait_count))) return code;
    sim_op *op = sim_op_new(what);
    op->batch.count = count;
    op->batch.semaphores = malloc((count ? count : 1) * sizeof *semaphores);
    op->batch.values = malloc((count ? count : 1) * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
        op->batch.semaphores[i] = semaphores[i];
        op->batch.values[i] = wanted(semaphores[i], what, params[i].value);
    }
    if (sim.controller) {
        op->batch.entries = malloc((count ? count : 1) * sizeof *op->batch.entries);
        for (uint32_t i = 0; i < count; i++)
            op->batch.entries[i] = sim_controller_add(semaphores[i], op->batch.values[i], what == DO_SIGNAL);
    }
    return sim_append(list, op, signal, wait_count, waits);
}

ze_result_t zeCommandListAppendSignalExternalSemaphoreExt(ze_command_list_handle_t list, uint32_t count,
                                                          ze_external_semaphore_ext_handle_t *semaphores,
                                                          ze_external_semaphore_signal_params_ext_t *params,
                                                          ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p count=%u signal=%p waits=%u", (void *)list, count, (void *)signal, wait_count);
    RETURN(append(list, DO_SIGNAL, count, semaphores, (const void *)params, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendWaitExternalSemaphoreExt(ze_command_list_handle_t list, uint32_t count,
                                                        ze_external_semaphore_ext_handle_t *semaphores,
                                                        ze_external_semaphore_wait_params_ext_t *params,
                                                        ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p count=%u signal=%p waits=%u", (void *)list, count, (void *)signal, wait_count);
    RETURN(append(list, DO_WAIT, count, semaphores, params, signal, wait_count, waits));
}
