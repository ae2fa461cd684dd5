/* Functions by name, for cuda.bindings. */
#include "sim.h"

/* Only for their addresses. */
#define F(name, since, symbol, per_thread) \
    extern void symbol##_address(void) __asm__(#symbol); \
    extern void per_thread##_address_per_thread(void) __asm__(#per_thread);
#include "functions.def"
#undef F

static const struct {
    const char *name;
    int since;
    void (*symbol)(void), (*per_thread)(void);
} functions[] = {
#define F(name, since, symbol, per_thread) {#name, since, symbol##_address, per_thread##_address_per_thread},
#include "functions.def"
#undef F
};

#ifdef _WIN32
/* On Linux, the library of an older driver lacks the symbols (tests/drivers/run). */
void sim_hide_newer(void) {
#define F(name, since, symbol, per_thread) {#symbol, since}, {#per_thread, since},
    static const struct { const char *symbol; int since; } all[] = {
#include "functions.def"
    };
#undef F
    const size_t count = sizeof all / sizeof *all;
    for (size_t i = 0; i < count; i++) {
        bool older = false;
        for (size_t j = 0; j < count; j++) older = older || (all[j].since <= sim.version && !strcmp(all[i].symbol, all[j].symbol));
        if (!older) sim_nt_hide(all[i].symbol);
    }
}
#endif

enum { FOUND = 0, NOT_FOUND = 1, VERSION_TOO_OLD = 2 };
enum { PER_THREAD_DEFAULT_STREAM = 2 };

/* SIMCUDA_MISSING=cuMemAlloc,cuMemFree */
static bool is_missing(const char *name) {
    const char *text = getenv("SIMCUDA_MISSING");
    size_t length = strlen(name);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ',')) return true;
    return false;
}

static int look(const char *name, void **out, int version, unsigned long long flags) {
    int status = NOT_FOUND;
    *out = NULL;
    if (is_missing(name)) return NOT_FOUND;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0 || functions[i].since > sim.version) continue;
        if (functions[i].since > version) {
            if (!*out) status = VERSION_TOO_OLD;
            continue;
        }
        bool per_thread = flags & PER_THREAD_DEFAULT_STREAM;
        *out = (void *)(uintptr_t)(per_thread ? functions[i].per_thread : functions[i].symbol);
        status = FOUND;
    }
    return status;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags) {
    if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
    return look(name, out, version, flags) == FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* With a pointer for the status it always succeeds (measured). */
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *status) {
    if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
    int found = look(name, out, version, flags);
    if (status) *status = found;
    return found == FOUND || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
