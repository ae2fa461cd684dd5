/* The interface of a layer, the settings, and the lookup of the extensions' functions. */
#include "sim.h"

#include <stdarg.h>

sim_process sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
sim_functions below;
const sim_identity sim_this = {
    .name = "simcl", .variables = "SIMCL", .abort_hint = "", .lock = &sim.lock,
};

/* ---- settings */
bool sim_missing(const char *name) {
    const char *text = sim_setting("MISSING");
    size_t length = strlen(name);
    for (; text; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL)
        if (strncmp(text, name, length) == 0 && (text[length] == 0 || text[length] == ',')) return true;
    return false;
}

/* The number of the choice; 0 if it is not set. */
static int choice(const char *name, const char *const *choices, const char *why) {
    const char *text = sim_setting(name);
    for (int i = 0; choices[i]; i++)
        if (!text || strcmp(text, choices[i]) == 0) return i;
    sim_wrong_setting(name, why);
}

/* ---- counters */
static sim_counters own_counters;
sim_counters *sim_counted;

/* -1 for another name. */
EXPORT int64_t simcl_counter(const char *name) {
    if (strcmp(name, "waits") == 0) return (int64_t)atomic_load(&sim_counted->waits);
    if (strcmp(name, "signals") == 0) return (int64_t)atomic_load(&sim_counted->signals);
    if (strcmp(name, "unacquired") == 0) return (int64_t)atomic_load(&sim_counted->unacquired);
    return -1;
}

/* For tests that fail a call in their own process; NULL ends the failures. */
EXPORT void simcl_fail(const char *before, const char *after) { sim_set_failures(before, after); }

__attribute__((constructor)) static void begin(void) {
    sim_begin();
    int fd = choice("FD", (const char *const[]){"open", "taken", "kept", NULL}, "is none of open, taken, kept");
    sim.fd_taken = fd == 1;
    sim.fd_kept = fd == 2;
    sim.deferred_release = choice("RELEASE", (const char *const[]){"strict", "deferred", NULL}, "is neither strict nor deferred");
    sim.unflushed = choice("FLUSH", (const char *const[]){"needed", "unneeded", NULL}, "is neither needed nor unneeded");
    sim_counted = sim_shared(&own_counters, sizeof own_counters);
}

/* ---- each call */
cl_int sim_enter(const char *name, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sim_called(name, format, arguments);
    va_end(arguments);
    return sim_failure_of(name, false);
}

cl_int sim_leave(const char *name, cl_int code) {
    if (code == CL_SUCCESS) code = sim_failure_of(name, true);
    if (code) sim_note("-> %s %d", name, code);
    return code;
}

/* ---- the layer */
EXPORT cl_int clGetLayerInfo(cl_uint name, size_t size, void *value, size_t *size_ret) {
    const cl_uint version = 100;
    return name == 0x4240 ? sim_answer(&version, sizeof version, size, value, size_ret) : CL_INVALID_VALUE;
}

EXPORT cl_int clInitLayer(cl_uint count, void *const *target, cl_uint *count_ret, void *const **layer) {
    static void *table[CL_PLACES];
    if (!target || !count_ret || !layer || count < CL_PLACES) return CL_INVALID_VALUE;
    memcpy(table, target, sizeof table);
#define FUNCTION(name, place, result, parameters) memcpy(&below.name, &target[place], sizeof below.name);
#define OWN(name, place, result, parameters)                        \
    FUNCTION(name, place, result, parameters)                       \
    {                                                               \
        result(*const own_) parameters = name;                      \
        memcpy(&table[place], &own_, sizeof own_);                  \
    }
    CL_FUNCTIONS
#undef FUNCTION
#undef OWN
    *count_ret = CL_PLACES;
    *layer = table;
    return CL_SUCCESS;
}

/* ---- the extensions' functions */
void *sim_extension_function(const char *name) {
    static const struct { const char *name; void (*function)(void); } functions[] = {
#define ROW(name) {#name, (void (*)(void))name}
        ROW(clCreateSemaphoreWithPropertiesKHR), ROW(clRetainSemaphoreKHR), ROW(clReleaseSemaphoreKHR),
        ROW(clGetSemaphoreInfoKHR), ROW(clGetSemaphoreHandleForTypeKHR), ROW(clEnqueueWaitSemaphoresKHR),
        ROW(clEnqueueSignalSemaphoresKHR), ROW(clEnqueueAcquireExternalMemObjectsKHR), ROW(clEnqueueReleaseExternalMemObjectsKHR),
#undef ROW
    };
    void *found = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(name, functions[i].name) == 0 && !sim_missing(name)) memcpy(&found, &functions[i].function, sizeof found);
    return found;
}

void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
    void *found = name && sim_is_ours(platform) ? sim_extension_function(name) : NULL;
    return found ? found : below.clGetExtensionFunctionAddressForPlatform(platform, name);
}

/* Without a platform. */
void *clGetExtensionFunctionAddress(const char *name) {
    void *found = name ? sim_extension_function(name) : NULL;
    return found ? found : below.clGetExtensionFunctionAddress(name);
}
