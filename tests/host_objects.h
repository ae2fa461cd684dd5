/* The host device's objects, version 1, as docs/host-objects.md defines them. C11, Linux; header only.
 * Every function that can fail returns -1 and sets errno, unless it says otherwise. */
#ifndef XSEM_HOST_OBJECTS_H
#define XSEM_HOST_OBJECTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define XSEM_HOST_MAGIC 0x314E4C544D455358ull
#define XSEM_HOST_VERSION 1u
#define XSEM_HOST_KIND_TIMELINE 2u
#define XSEM_HOST_TIMELINE_BYTES 4096u
#define XSEM_HOST_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

typedef struct xsem_host_timeline {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    _Atomic uint64_t value;
    _Atomic uint32_t sequence;
} xsem_host_timeline;

_Static_assert(sizeof(xsem_host_timeline) <= XSEM_HOST_TIMELINE_BYTES, "one page");
_Static_assert(offsetof(xsem_host_timeline, value) == 16, "value");
_Static_assert(offsetof(xsem_host_timeline, sequence) == 24, "sequence");

typedef enum xsem_host_kind {
    XSEM_HOST_UNKNOWN = 0,
    XSEM_HOST_BINARY = 1,
    XSEM_HOST_TIMELINE = 2,
    XSEM_HOST_MEMORY = 3
} xsem_host_kind;

static inline int64_t xsem_host_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- binary semaphores */
static inline int xsem_host_binary_create(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

static inline void xsem_host_binary_signal(int fd) {
    struct pollfd poller = {fd, POLLOUT, 0};
    uint64_t one = 1;
    if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLOUT) && write(fd, &one, sizeof one) < 0) {
        /* A blocking write is not possible here, and EAGAIN means that it is signalled. */
    }
}

/* 1: taken; 0: the time is over. timeout_ns < 0: no limit. */
static inline int xsem_host_binary_wait(int fd, int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? INT64_MAX : xsem_host_now_ns() + timeout_ns;
    for (;;) {
        int64_t left = timeout_ns < 0 ? 1000000000 : deadline - xsem_host_now_ns();
        struct pollfd poller = {fd, POLLIN, 0};
        int ready = poll(&poller, 1, left <= 0 ? 0 : (int)((left + 999999) / 1000000 > INT_MAX ? INT_MAX : (left + 999999) / 1000000));
        if (ready == 1) {
            uint64_t counter;
            struct iovec into = {&counter, sizeof counter};
            if (preadv2(fd, &into, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof counter) return 1;
            if (errno != EAGAIN && errno != EINTR) return -1;
        } else if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (timeout_ns >= 0 && xsem_host_now_ns() >= deadline) return 0;
    }
}

/* ---- sealed memfds */
static inline int xsem_host_sealed_memfd(const char *name, size_t size, const void *head, size_t head_bytes) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)size) != 0 || pwrite(fd, head, head_bytes, 0) != (ssize_t)head_bytes ||
        fcntl(fd, F_ADD_SEALS, XSEM_HOST_SEALS) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static inline int xsem_host_timeline_create(uint64_t initial_value) {
    xsem_host_timeline head;
    memset(&head, 0, sizeof head);
    head.magic = XSEM_HOST_MAGIC;
    head.version = XSEM_HOST_VERSION;
    head.kind = XSEM_HOST_KIND_TIMELINE;
    atomic_init(&head.value, initial_value);
    return xsem_host_sealed_memfd("xsem-timeline", XSEM_HOST_TIMELINE_BYTES, &head, sizeof head);
}

/* `size` is a whole number of pages. */
static inline int xsem_host_memory_create(size_t size) { return xsem_host_sealed_memfd("xsem-memory", size, "", 0); }

/* What an fd is, as far as the contract lets one see it; closes nothing. */
static inline xsem_host_kind xsem_host_recognise(int fd) {
    char path[64], target[256], line[256];
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return XSEM_HOST_UNKNOWN;
    target[length] = 0;
    if (strcmp(target, "anon_inode:[eventfd]") == 0) {
        int counting = 0;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(path, "re");
        while (info && fgets(line, sizeof line, info)) sscanf(line, "eventfd-semaphore: %d", &counting);
        if (info) fclose(info);
        return counting ? XSEM_HOST_UNKNOWN : XSEM_HOST_BINARY;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & XSEM_HOST_SEALS) != XSEM_HOST_SEALS || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return XSEM_HOST_UNKNOWN;
    if (status.st_size == XSEM_HOST_TIMELINE_BYTES && strncmp(target, "/memfd:xsem-timeline", 20) == 0) {
        xsem_host_timeline head;
        if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && head.magic == XSEM_HOST_MAGIC &&
            head.version == XSEM_HOST_VERSION && head.kind == XSEM_HOST_KIND_TIMELINE)
            return XSEM_HOST_TIMELINE;
        return XSEM_HOST_UNKNOWN;
    }
    return XSEM_HOST_MEMORY;
}

/* ---- timelines, mapped */
static inline xsem_host_timeline *xsem_host_timeline_map(int fd) {
    void *page = mmap(NULL, XSEM_HOST_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : (xsem_host_timeline *)page;
}

static inline void xsem_host_timeline_unmap(xsem_host_timeline *timeline) { munmap(timeline, XSEM_HOST_TIMELINE_BYTES); }

static inline uint64_t xsem_host_timeline_value(xsem_host_timeline *timeline) {
    return atomic_load_explicit(&timeline->value, memory_order_acquire);
}

static inline void xsem_host_timeline_signal(xsem_host_timeline *timeline, uint64_t value) {
    atomic_store_explicit(&timeline->value, value, memory_order_release);
    syscall(SYS_futex, &timeline->sequence, FUTEX_WAKE_OP, INT_MAX, (void *)0, &timeline->sequence,
            FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
}

/* 1: met; 0: the time is over. timeout_ns < 0: no limit. */
static inline int xsem_host_timeline_wait(xsem_host_timeline *timeline, uint64_t value, int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? INT64_MAX : xsem_host_now_ns() + timeout_ns;
    int restless = 0;
    for (;;) {
        uint32_t sequence = atomic_load_explicit(&timeline->sequence, memory_order_acquire);
        if (xsem_host_timeline_value(timeline) >= value) return 1;
        /* Looked at again once a second at the latest: a peer killed between store and wake wakes nobody. */
        int64_t left = timeout_ns < 0 ? 1000000000 : deadline - xsem_host_now_ns();
        if (left <= 0) return 0;
        if (left > 1000000000) left = 1000000000;
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        if (syscall(SYS_futex, &timeline->sequence, FUTEX_WAIT, sequence, &timeout, NULL, 0) == -1 && errno == EAGAIN) {
            if (++restless > 64) {
                struct timespec pause = {0, 1000000};
                nanosleep(&pause, NULL);
            }
        } else {
            restless = 0;
        }
    }
}

#endif
