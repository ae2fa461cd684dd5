/* The log, the failures made on purpose, the counters, and the objects' addresses. */
#include "sim.h"

#include <stdarg.h>

#define MAX_FAILURES 32
#define LOG_FD_FROM 960

typedef struct {
    char name[80];
    unsigned code;
    int number;      /* the call that fails; 0: each */
    bool and_later;
    bool after;      /* it acts, and then says so */
    int seen;
} failure;

static failure failures[MAX_FAILURES];
static int failure_count;
static int log_fd = -1;
static __thread const char *current_call;

/* ---- log */
void sim_note(const char *format, ...) {
    if (log_fd < 0) return;
    char line[8192];
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    int length = snprintf(line, sizeof line, "%d ", (int)syscall(SYS_gettid));
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (write(log_fd, line, (size_t)length) != length) {
        /* A full disk: the test that reads the log will see it. */
    }
    errno = saved;
}

const char *sim_hex(const void *bytes, size_t size) {
    static __thread char texts[8][1024];
    static __thread unsigned turn;
    if (!bytes) return "null";
    char *text = texts[turn++ % 8];
    if (size > 511) size = 511;
    for (size_t i = 0; i < size; i++) sprintf(text + 2 * i, "%02x", ((const unsigned char *)bytes)[i]);
    text[2 * size] = 0;
    return text;
}

_Noreturn void sim_abort(const char *why) {
    const char *call = current_call ? current_call : "a worker";
    fprintf(stderr, "simze: abort in %s: %s\n", call, why);
    sim_note("# abort in %s: %s", call, why);
    abort();
}

/* ---- failures on purpose */
static void read_failures(const char *text, bool after) {
    while (text && *text && failure_count < MAX_FAILURES) {
        failure *each = &failures[failure_count];
        memset(each, 0, sizeof *each);
        size_t length = strcspn(text, ":,");
        if (text[length] == ':' && length < sizeof each->name) {
            char *end;
            memcpy(each->name, text, length);
            each->code = (unsigned)strtoul(text + length + 1, &end, 0);
            each->after = after;
            text = end;
            if (*text == ':') {
                each->number = (int)strtol(text + 1, &end, 10);
                text = end;
                if (*text == '+') each->and_later = true, text++;
            }
            failure_count++;
        }
        if (*text && *text != ',') {
            fprintf(stderr, "simze: SIMZE_FAIL is not NAME:CODE[:NUMBER[+]],… at '%s'\n", text);
            abort();
        }
        if (*text == ',') text++;
    }
}

/* For tests that fail a call in their own process; NULL: no failures any more. */
EXPORT void simze_fail(const char *before, const char *after) {
    pthread_mutex_lock(&sim.lock);
    failure_count = 0;
    read_failures(before, false);
    read_failures(after, true);
    pthread_mutex_unlock(&sim.lock);
}

static ze_result_t failure_of(const char *name, bool after) {
    ze_result_t code = ZE_RESULT_SUCCESS;
    if (failure_count == 0) return code;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < failure_count; i++) {
        failure *each = &failures[i];
        if (each->after != after || strcmp(name, each->name) != 0) continue;
        each->seen++;
        if (each->number == 0 || each->seen == each->number || (each->and_later && each->seen > each->number))
            code = each->code;
    }
    pthread_mutex_unlock(&sim.lock);
    return code;
}

/* ---- each call */
ze_result_t sim_enter(const char *name, int flags, const char *format, ...) {
    if (log_fd >= 0) {
        char text[4096];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        sim_note("%s %s", name, text);
    }
    current_call = name;
    ze_result_t code = failure_of(name, false);
    if (code) return code;
    return sim.initialised || (flags & CALL_ANY) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t sim_leave(const char *name, ze_result_t code) {
    if (code == ZE_RESULT_SUCCESS || code == ZE_RESULT_NOT_READY) {
        ze_result_t after = failure_of(name, true);
        if (after) code = after;
    }
    if (code) sim_note("-> %s 0x%x", name, code);
    return code;
}

/* ---- addresses of objects */
static const void **table;
static size_t table_size, table_used;

static size_t slot_of(const void *address) {
    size_t slot = ((uintptr_t)address >> 4) * 0x9E3779B97F4A7C15ull % table_size;
    while (table[slot] && table[slot] != address) slot = (slot + 1) % table_size;
    return slot;
}

void *sim_new(sim_kind kind, size_t size) {
    sim_object *object = calloc(1, size);
    object->kind = kind;
    object->alive = true;
    if (2 * (table_used + 1) > table_size) {
        const void **old = table;
        size_t count = table_size;
        table_size = table_size ? 2 * table_size : 1024;
        table = calloc(table_size, sizeof *table);
        for (size_t i = 0; i < count; i++)
            if (old[i]) table[slot_of(old[i])] = old[i];
        free(old);
    }
    table[slot_of(object)] = object;
    table_used++;
    return object;
}

void *sim_find(const void *handle, sim_kind kind) {
    if (!handle || !table_size) return NULL;
    sim_object *object = (sim_object *)table[slot_of(handle)];
    if (!object || object->kind != kind) return NULL;
    if (!object->alive) sim_abort("this object was destroyed (a real driver uses freed memory here)");
    return object;
}

/* Another driver's handle, or one that the loader wrapped: a real driver would take it for its own object. */
ze_result_t sim_get(const void *handle, sim_kind kind, void *out) {
    if (!handle) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    void *found = sim_find(handle, kind);
    if (!found) {
        sim_note("# %p is no handle of this kind and driver", handle);
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *(void **)out = found;
    return ZE_RESULT_SUCCESS;
}

/* ---- counters */
static sim_counters own_counters;

static sim_counters *counters_in(const char *path) {
    int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return &own_counters;
    void *page = ftruncate(fd, sizeof own_counters) == 0
                     ? mmap(NULL, sizeof own_counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return page == MAP_FAILED ? &own_counters : page;
}

/* Waits that passed though nothing had met them; -1 for another name. */
EXPORT int64_t simze_counter(const char *name) {
    if (strcmp(name, "let_through") == 0) return (int64_t)atomic_load(&sim.counters->let_through);
    if (strcmp(name, "waits") == 0) return (int64_t)atomic_load(&sim.counters->waits);
    if (strcmp(name, "signals") == 0) return (int64_t)atomic_load(&sim.counters->signals);
    return -1;
}

/* ---- beginning */
static void before_fork(void) { pthread_mutex_lock(&sim.lock); }
static void after_fork(void) { pthread_mutex_unlock(&sim.lock); }

/* A child has no workers: it begins anew, and its parent's handles are none of its own. */
static void in_child(void) {
    pthread_mutex_unlock(&sim.lock);
    sim.initialised = false;
    table = NULL;
    table_size = table_used = 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SIMZE_LOG");
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sim.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (path && *path) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            fprintf(stderr, "simze: SIMZE_LOG=%s cannot be written: %s\n", path, strerror(errno));
            abort();
        }
        /* Out of the way of the numbers that programs look at. */
        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_FROM);
        if (log_fd >= 0) close(fd);
        else log_fd = fd;
    }
    read_failures(getenv("SIMZE_FAIL"), false);
    read_failures(getenv("SIMZE_FAIL_AFTER"), true);
    sim.counters = counters_in(getenv("SIMZE_COUNTERS"));
    pthread_atfork(before_fork, after_fork, in_child);
    sim_settings();
}
