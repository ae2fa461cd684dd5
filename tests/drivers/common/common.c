#include "common.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>

#define MAX_FAILURES 32
#define HEX_BYTES 1728 /* the parameters of 12 of CUDA's semaphores */

static int log_fd = -1;
__thread const char *sim_call;

/* ---- settings */
const char *sim_setting(const char *name) {
    char variable[80];
    snprintf(variable, sizeof variable, "%s_%s", sim_this.variables, name);
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

_Noreturn void sim_wrong_setting(const char *name, const char *why) {
    fprintf(stderr, "%s: %s_%s=%s %s\n", sim_this.name, sim_this.variables, name, sim_setting(name), why);
    abort();
}

/* ---- log */
static void write_line(const char *format, va_list arguments) {
    char line[8192];
    int saved = errno;
    int length = snprintf(line, sizeof line, "%d ", sim_thread_id());
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (!sim_write_log(log_fd, line, (size_t)length)) {
        /* A full disk. The test that reads the log fails then. */
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

void sim_called(const char *name, const char *format, va_list arguments) {
    sim_call = name;
    if (log_fd < 0) return;
    char text[4096];
    vsnprintf(text, sizeof text, format, arguments);
    sim_note("%s %s", name, text);
}

const char *sim_hex(const void *bytes, size_t size) {
    static __thread char texts[8][2 * HEX_BYTES + 1];
    static __thread unsigned turn;
    if (!bytes) return "null";
    char *text = texts[turn++ % 8];
    if (size > HEX_BYTES) size = HEX_BYTES;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = ((const unsigned char *)bytes)[i];
        text[2 * i] = "0123456789abcdef"[byte >> 4];
        text[2 * i + 1] = "0123456789abcdef"[byte & 15];
    }
    text[2 * size] = 0;
    return text;
}

_Noreturn void sim_abort(const char *why) {
    const char *call = sim_call ? sim_call : "a worker";
    fprintf(stderr, "%s: abort in %s: %s%s\n", sim_this.name, call, why, sim_this.abort_hint);
    sim_note("# abort in %s: %s", call, why);
    abort();
}

/* ---- configured failures */
typedef struct {
    char name[80];
    int code;
    int number;      /* the call that fails; 0: each */
    bool and_later;
    bool after;      /* acts first, then fails */
    int seen;
} failure;

static failure failures[MAX_FAILURES];
static int failure_count;

static void read_failures(const char *text, bool after) {
    while (text && *text && failure_count < MAX_FAILURES) {
        failure *each = &failures[failure_count];
        memset(each, 0, sizeof *each);
        size_t length = strcspn(text, ":,");
        char *end = NULL;
        if (text[length] == ':' && length < sizeof each->name) {
            memcpy(each->name, text, length);
            /* Unsigned: 0x70000003 and -30 fit both. */
            each->code = (int)strtoul(text + length + 1, &end, 0);
            if (end == text + length + 1) end = NULL;
        }
        if (end && *end == ':') {
            each->number = (int)strtol(end + 1, &end, 10);
            if (*end == '+') each->and_later = true, end++;
        }
        if (!end || (*end && *end != ',')) {
            fprintf(stderr, "%s: %s_FAIL is not NAME:CODE[:NUMBER[+]],… at '%s'\n", sim_this.name, sim_this.variables, text);
            abort();
        }
        each->after = after;
        failure_count++;
        text = *end ? end + 1 : end;
    }
}

void sim_set_failures(const char *before, const char *after) {
    pthread_mutex_lock(sim_this.lock);
    failure_count = 0;
    read_failures(before, false);
    read_failures(after, true);
    pthread_mutex_unlock(sim_this.lock);
}

int sim_failure_of(const char *name, bool after) {
    int code = 0;
    if (failure_count == 0) return code;
    pthread_mutex_lock(sim_this.lock);
    for (int i = 0; i < failure_count; i++) {
        failure *each = &failures[i];
        if (each->after != after) continue;
        if (sim_this.named ? !sim_this.named(name, each->name) : strcmp(name, each->name) != 0) continue;
        each->seen++;
        if (each->number == 0 || each->seen == each->number || (each->and_later && each->seen > each->number))
            code = each->code;
    }
    pthread_mutex_unlock(sim_this.lock);
    return code;
}

/* ---- time between effect and completion */
static long late_us;

void sim_be_late(void) {
    if (!late_us) return;
    pthread_mutex_unlock(sim_this.lock);
    usleep((useconds_t)late_us);
    pthread_mutex_lock(sim_this.lock);
}

static void read_lateness(void) {
    const char *text = sim_setting("LATE_US");
    char *end = NULL;
    late_us = text ? strtol(text, &end, 10) : 0;
    if (text && (*end || late_us < 0 || late_us > 999999)) sim_wrong_setting("LATE_US", "is not a number of microseconds below a second");
}

/* ---- threads */
void sim_start_thread(void *(*function)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#ifndef _WIN32
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals of the program are for its own threads */
#endif
    if (pthread_create(&thread, &attributes, function, argument) != 0) sim_abort("no thread for the work");
#ifndef _WIN32
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    pthread_attr_destroy(&attributes);
}

/* ---- addresses of objects */
static const void **table;
static size_t table_size, table_used;

static size_t slot_of(const void *address) {
    size_t slot = ((uintptr_t)address >> 4) * 0x9E3779B97F4A7C15ull % table_size;
    while (table[slot] && table[slot] != address) slot = (slot + 1) % table_size;
    return slot;
}

void *sim_new(int kind, size_t size) {
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

void *sim_known(const void *handle, int kind) {
    if (!handle || !table_size) return NULL;
    sim_object *object = (sim_object *)table[slot_of(handle)];
    return object && object->kind == kind ? object : NULL;
}

size_t sim_alive(void) {
    size_t count = 0;
    for (size_t i = 0; i < table_size; i++)
        if (table[i] && ((const sim_object *)table[i])->alive) count++;
    return count;
}

void sim_forget_objects(void) {
    table = NULL;
    table_size = table_used = 0;
}

/* ---- start */
void sim_begin(void) {
    const char *path = sim_setting("LOG");
    if (path) {
        log_fd = sim_open_log(path);
        if (log_fd < 0) {
            fprintf(stderr, "%s: %s_LOG=%s cannot be written: %s\n", sim_this.name, sim_this.variables, path, strerror(errno));
            abort();
        }
    }
    read_failures(sim_setting("FAIL"), false);
    read_failures(sim_setting("FAIL_AFTER"), true);
    read_lateness();
}
