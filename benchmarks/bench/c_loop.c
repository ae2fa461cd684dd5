/* The driver's own cost: calls in a loop, without Python. This file needs no CUDA header: it declares the two structs
 * that it uses, with their sizes in the CUDA 13.0 headers, and opens libcuda in c_loop_open.
 *
 *     cc -O2 -shared -fPIC -o c_loop.so c_loop.c -ldl
 *
 * Functions return nanoseconds, or the driver's error as a negative number; 0 of c_loop_open is success. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SEMAPHORES = 64 };

/* CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and …_WAIT_PARAMS: alike as far as the fence's value. */
typedef struct {
    uint64_t fence_value;
    uint32_t rest[34];
} semaphore_params;
_Static_assert(sizeof(semaphore_params) == 144, "semaphore params");

/* CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC */
typedef struct {
    int type;
    union {
        int fd;
        void *words[2];
    } handle;
    uint32_t flags, reserved[16];
} semaphore_desc;
_Static_assert(sizeof(semaphore_desc) == 96, "semaphore descriptor");

typedef int (*semaphores_async)(void **, const semaphore_params *, unsigned, void *);
typedef int (*import_semaphore)(void **, const semaphore_desc *);
typedef int (*destroy_semaphore)(void *);

static semaphores_async signal_async, wait_async;
static import_semaphore import_one;
static destroy_semaphore destroy_one;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int c_loop_open(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) return -1;
    *(void **)&signal_async = dlsym(handle, "cuSignalExternalSemaphoresAsync");
    *(void **)&wait_async = dlsym(handle, "cuWaitExternalSemaphoresAsync");
    *(void **)&import_one = dlsym(handle, "cuImportExternalSemaphore");
    *(void **)&destroy_one = dlsym(handle, "cuDestroyExternalSemaphore");
    return signal_async && wait_async && import_one && destroy_one ? 0 : -2;
}

/* `calls` signals or waits of `count` semaphores, with the values first, first + 1, … */
int64_t c_loop_semaphores(int wait, void **semaphores, unsigned count, void *stream, uint64_t first, unsigned calls) {
    static semaphore_params params[MOST_SEMAPHORES];
    semaphores_async call = wait ? wait_async : signal_async;
    int64_t began = now();
    for (unsigned index = 0; index < calls; index++) {
        for (unsigned each = 0; each < count; each++) params[each].fence_value = first + index;
        int code = call(semaphores, params, count, stream);
        if (code) return -code;
    }
    return now() - began;
}

/* Import duplicates of `fd`, which the driver takes on success. */
int64_t c_loop_import(int type, int fd, void **semaphores, unsigned count) {
    int64_t began = now();
    for (unsigned index = 0; index < count; index++) {
        semaphore_desc desc = {.type = type};
        desc.handle.fd = dup(fd);
        int code = import_one(&semaphores[index], &desc);
        if (code) {
            close(desc.handle.fd);
            return -code;
        }
    }
    return now() - began;
}

int64_t c_loop_destroy(void **semaphores, unsigned count) {
    int64_t began = now();
    for (unsigned index = 0; index < count; index++) {
        int code = destroy_one(semaphores[index]);
        if (code) return -code;
    }
    return now() - began;
}
