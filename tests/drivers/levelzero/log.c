/* Begin and end of each call of the driver, the counters, and the start of a process. */
#include "work.h"

#include <stdarg.h>

const sim_identity sim_this = {.name = "simze", .variables = "SIMZE", .abort_hint = "", .lock = &sim.lock};

/* For tests that fail a call in their own process; NULL ends the failures. */
EXPORT void simze_fail(const char *before, const char *after) { sim_set_failures(before, after); }

/* ---- each call */
ze_result_t sim_enter(const char *name, int flags, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sim_called(name, format, arguments);
    va_end(arguments);
    ze_result_t code = (ze_result_t)sim_failure_of(name, false);
    if (code) return code;
    return sim.initialised || (flags & CALL_ANY) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t sim_leave(const char *name, ze_result_t code) {
    if (code == ZE_RESULT_SUCCESS || code == ZE_RESULT_NOT_READY) {
        ze_result_t after = (ze_result_t)sim_failure_of(name, true);
        if (after) code = after;
    }
    if (code) sim_note("-> %s 0x%x", name, code);
    return code;
}

/* ---- objects */
void *sim_find(const void *handle, int kind) {
    sim_object *object = sim_known(handle, kind);
    if (object && !object->alive) sim_abort("this object was destroyed (a real driver uses freed memory here)");
    return object;
}

/* A handle of another driver, or one that the loader wrapped: a real driver would use it as its own object. */
ze_result_t sim_get(const void *handle, int kind, void *out) {
    if (!handle) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    void *found = sim_find(handle, kind);
    if (!found) {
        sim_note("# %p is not a handle of this kind and driver", handle);
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *(void **)out = found;
    return ZE_RESULT_SUCCESS;
}

/* ---- counters */
static sim_counters own_counters;

/* One counter; -1 for another name. */
EXPORT int64_t simze_counter(const char *name) {
    if (strcmp(name, "let_through") == 0) return (int64_t)atomic_load(&sim.counters->let_through);
    if (strcmp(name, "waits") == 0) return (int64_t)atomic_load(&sim.counters->waits);
    if (strcmp(name, "signals") == 0) return (int64_t)atomic_load(&sim.counters->signals);
    if (strcmp(name, "overlaps") == 0) return (int64_t)atomic_load(&sim.counters->overlaps);
    return -1;
}

/* The number of the driver's objects: itself, devices, contexts, queues, lists, fences, pools, events, images, semaphores. */
EXPORT int64_t simze_alive(void) {
    pthread_mutex_lock(&sim.lock);
    int64_t count = (int64_t)sim_alive();
    pthread_mutex_unlock(&sim.lock);
    return count;
}

/* ---- start */
#ifdef _WIN32
__attribute__((constructor)) static void begin(void) {
    pthread_cond_init(&sim.changed, NULL);
    sim_begin();
    sim.counters = &own_counters;
    sim_settings();
}
#else
static void before_fork(void) { pthread_mutex_lock(&sim.lock); }
static void after_fork(void) { pthread_mutex_unlock(&sim.lock); }

/* A child has no workers: it starts again, and the handles of its parent are invalid. */
static void in_child(void) {
    pthread_mutex_unlock(&sim.lock);
    sim.initialised = false;
    sim.blocked = 0;
    sim_controller_forget();
    sim_engines_forget();
    sim_forget_objects();
}

__attribute__((constructor)) static void begin(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sim.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sim_begin();
    sim.counters = sim_shared(&own_counters, sizeof own_counters);
    pthread_atfork(before_fork, after_fork, in_child);
    sim_settings();
}
#endif
