/* The log, the failures made on purpose, and the objects' addresses. */
#include "sim.h"

#include <stdarg.h>

#define MAX_FAILURES 32
#define LOG_FD_FROM 960
#define HEX_BYTES 1728 /* the parameters of 12 semaphores */

typedef struct {
    char name[80];
    int code;
    int number;      /* the call that fails; 0: each */
    bool and_later;
    bool after;      /* it acts, and then says so */
    int seen;
} failure;

static failure failures[MAX_FAILURES];
static int failure_count;
static int log_fd = -1;

/* ---- log */
static void write_line(const char *format, va_list arguments) {
    char line[8192];
    int saved = errno;
    int length = snprintf(line, sizeof line, "%d ", (int)syscall(SYS_gettid));
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (write(log_fd, line, (size_t)length) != length) {
        /* A full disk: the test that reads the log will see it. */
    }
    errno = saved;
}

void sim_note(const char *format, ...) {
    if (log_fd < 0) return;
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

const char *sim_hex(const void *bytes, size_t size) {
    static __thread char texts[4][2 * HEX_BYTES + 1];
    static __thread unsigned turn;
    if (!bytes) return "null";
    char *text = texts[turn++ % 4];
    if (size > HEX_BYTES) size = HEX_BYTES;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        text[2 * i] = "0123456789abcdef"[byte >> 4];
        text[2 * i + 1] = "0123456789abcdef"[byte & 15];
    }
    text[2 * size] = 0;
    return text;
}

const char *sim_name(const void *name) {
    static __thread char text[1100];
    const unsigned char *bytes = name;
    size_t length = 0;
    if (!name) return "";
    while (length < 500 && (bytes[length] || bytes[length + 1])) length += 2;
    snprintf(text, sizeof text, " name=%s", sim_hex(name, length));
    return text;
}

_Noreturn void sim_abort(const char *why) {
    fprintf(stderr, "simcuda: abort in %s: %s (the real driver crashes here)\n", sim_self.call, why);
    sim_note("# abort in %s: %s", sim_self.call, why);
    abort();
}

/* ---- failures on purpose */
static void read_failures(const char *text, bool after) {
    while (text && *text && failure_count < MAX_FAILURES) {
        failure *each = &failures[failure_count];
        memset(each, 0, sizeof *each);
        int used = 0;
        if (sscanf(text, "%79[^:,]:%d%n", each->name, &each->code, &used) == 2) {
            each->after = after;
            text += used;
            if (*text == ':') {
                each->number = (int)strtol(text + 1, (char **)&text, 10);
                if (*text == '+') each->and_later = true, text++;
            }
            failure_count++;
        } else {
            fprintf(stderr, "simcuda: SIMCUDA_FAIL is not NAME:CODE[:NUMBER[+]],… at '%s'\n", text);
            abort();
        }
        if (*text == ',') text++;
    }
}

/* For tests that fail a call in their own process; NULL: no failures any more. */
EXPORT void simcuda_fail(const char *before, const char *after) {
    pthread_mutex_lock(&sim.lock);
    failure_count = 0;
    read_failures(before, false);
    read_failures(after, true);
    pthread_mutex_unlock(&sim.lock);
}

/* cuMemFree_v2 is asked for as cuMemFree, too. */
static bool is_named(const char *name, const char *asked) {
    size_t length = strlen(asked);
    if (strncmp(name, asked, length) != 0) return false;
    return name[length] == 0 || (name[length] == '_' && name[length + 1] == 'v' && strlen(name + length) == 3);
}

static CUresult failure_of(const char *name, bool after) {
    CUresult code = CUDA_SUCCESS;
    if (failure_count == 0) return code;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < failure_count; i++) {
        failure *each = &failures[i];
        if (each->after != after || !is_named(name, each->name)) continue;
        each->seen++;
        if (each->number == 0 || each->seen == each->number || (each->and_later && each->seen > each->number))
            code = each->code;
    }
    pthread_mutex_unlock(&sim.lock);
    return code;
}

/* ---- a fault on purpose */
sim_fault sim_planted = FAULT_none;

static void plant(const char *name) {
    static const char *const names[] = {
        "",
#define FAULT(name, text) #name,
#include "faults.def"
#undef FAULT
    };
    if (!name || !*name) return;
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) sim_planted = (sim_fault)i;
    if (sim_planted == FAULT_none) {
        fprintf(stderr, "simcuda: SIMCUDA_FAULT=%s is no fault of faults.def\n", name);
        abort();
    }
}

/* ---- each call */
/* What waits while another thread sits in a free or destroy: each of these was measured. Queries of events and changes of the
 * current context return. */
static bool is_held(const char *name) {
    static const char *const held[] = {"cuEventRecord", "cuStreamWaitEvent", "cuSignalExternalSemaphores", "cuWaitExternalSemaphores",
                                       "cuMemcpy", "cuMemset", "cuImportExternal", "cuStreamCreate", "cuMemHostAlloc", "cuMemAlloc"};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (strncmp(name, held[i], strlen(held[i])) == 0) return true;
    return false;
}

CUresult sim_enter(const char *name, int flags, const char *format, ...) {
    if (log_fd >= 0) {
        char text[4096];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        sim_note("%s %s", name, text);
    }
    sim_self.call = name;
    CUresult code = failure_of(name, false);
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
        CUresult after = failure_of(name, true);
        if (after) code = after;
    }
    if (code) sim_note("-> %s %d", name, code);
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
    return object && object->kind == kind ? object : NULL;
}

/* ---- beginning and end */
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SIMCUDA_LOG");
    if (path && *path) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            fprintf(stderr, "simcuda: SIMCUDA_LOG=%s cannot be written: %s\n", path, strerror(errno));
            abort();
        }
        /* Out of the way of the numbers that programs look at. */
        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_FROM);
        if (log_fd >= 0) close(fd);
        else log_fd = fd;
    }
    plant(getenv("SIMCUDA_FAULT"));
    read_failures(getenv("SIMCUDA_FAIL"), false);
    read_failures(getenv("SIMCUDA_FAIL_AFTER"), true);
}

__attribute__((destructor)) static void end(void) {
    sim.gone = true;
}
