/* Begin and end of each call of libcuda, and the planted faults. */
#include "sim.h"

#include <stdarg.h>

/* ---- configured failures */
/* The name cuMemFree also selects cuMemFree_v2. */
static bool is_named(const char *name, const char *asked) {
    size_t length = strlen(asked);
    if (strncmp(name, asked, length) != 0) return false;
    return name[length] == 0 || (name[length] == '_' && name[length + 1] == 'v' && strlen(name + length) == 3);
}

const sim_identity sim_this = {
    .name = "simcuda", .variables = "SIMCUDA", .abort_hint = " (the real driver crashes here)", .lock = &sim.lock,
    .named = is_named,
};

/* For tests that fail a call in their own process; NULL ends the failures. */
EXPORT void simcuda_fail(const char *before, const char *after) { sim_set_failures(before, after); }

/* ---- log */
const char *sim_name(const void *name) {
    static __thread char text[1100];
    const unsigned char *bytes = name;
    size_t length = 0;
    if (!name) return "";
    while (length < 500 && (bytes[length] || bytes[length + 1])) length += 2;
    snprintf(text, sizeof text, " name=%s", sim_hex(name, length));
    return text;
}

/* ---- each call */
/* Calls that wait while another thread is blocked in a free or destroy; each was measured. Event queries and changes of the
 * current context return. */
static bool is_held(const char *name) {
    static const char *const held[] = {"cuEventRecord", "cuStreamWaitEvent", "cuSignalExternalSemaphores", "cuWaitExternalSemaphores",
                                       "cuMemcpy", "cuMemset", "cuImportExternal", "cuStreamCreate", "cuMemHostAlloc", "cuMemAlloc"};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (strncmp(name, held[i], strlen(held[i])) == 0) return true;
    return false;
}

CUresult sim_enter(const char *name, int flags, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sim_called(name, format, arguments);
    va_end(arguments);
    CUresult code = (CUresult)sim_failure_of(name, false);
    if (code) return code;
    if (sim.gone && !(flags & CALL_ANY)) return CUDA_ERROR_DEINITIALIZED;
    if (sim.forked && !(flags & (CALL_ANY | CALL_FORKED))) return CUDA_ERROR_NOT_INITIALIZED;
    if (!sim.initialised && !(flags & CALL_ANY)) return CUDA_ERROR_NOT_INITIALIZED;
    if (is_held(name)) {
        pthread_mutex_lock(&sim.lock);
        while (sim.held_by_others && !pthread_equal(sim.holder, pthread_self())) pthread_cond_wait(&sim.changed, &sim.lock);
        pthread_mutex_unlock(&sim.lock);
    }
    if ((flags & CALL_WORK) && sim.async_error) {
        pthread_mutex_lock(&sim.lock);
        code = sim.async_error;
        sim.async_error = CUDA_SUCCESS;
        pthread_mutex_unlock(&sim.lock);
    }
    return code;
}

CUresult sim_leave(const char *name, CUresult code) {
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY) {
        CUresult after = (CUresult)sim_failure_of(name, true);
        if (after) code = after;
    }
    if (code) sim_note("-> %s %d", name, code);
    return code;
}

/* ---- start and end */
__attribute__((constructor)) static void begin(void) {
    sim_begin();
}

__attribute__((destructor)) static void end(void) {
    sim.gone = true;
}
