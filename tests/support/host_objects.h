/* Portable objects, version 2, defined in docs/host-objects.md. C11, Linux; header only.
 * Functions that create or open an object return -1 (NULL) on failure and set errno. No function closes or keeps an fd
 * that it gets. Every function may be called from any thread. */
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
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define XSEM_HOST_MAGIC 0x314E4C544D455358ull
#define XSEM_HOST_VERSION 2u
#define XSEM_HOST_POLL_NS 100000
#define XSEM_HOST_KIND_TIMELINE 2u
#define XSEM_HOST_PLACES 128
#define XSEM_HOST_FIRST_LOCK 4096
#define XSEM_HOST_ABANDONED 1u
#define XSEM_HOST_RAISED_BY ((uint64_t)1 << 62)
#define XSEM_HOST_TIMELINE_BYTES 4096u
#define XSEM_HOST_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define XSEM_HOST_TIMELINE_LINK "/memfd:xsem-timeline (deleted)"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

typedef struct xsem_host_timeline {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    _Atomic uint64_t value;
    _Atomic uint32_t sequence;
    _Atomic uint32_t silent; /* not 0: some signals wake no waiter, so waits look at least once in XSEM_HOST_POLL_NS */
    _Atomic uint32_t abandoned; /* 1: no signal will follow, and the value was raised to end the waits */
    uint32_t unused;
    _Atomic uint64_t last; /* the value before it was raised */
    uint64_t unused2[58];
    struct {
        uint32_t pid; /* 0: its owner left */
        uint32_t count;
        uint64_t started;
    } places[XSEM_HOST_PLACES];
} xsem_host_timeline;

_Static_assert(sizeof(xsem_host_timeline) <= XSEM_HOST_TIMELINE_BYTES, "one page");
_Static_assert(offsetof(xsem_host_timeline, version) == 8, "version");
_Static_assert(offsetof(xsem_host_timeline, kind) == 12, "kind");
_Static_assert(offsetof(xsem_host_timeline, value) == 16, "value");
_Static_assert(offsetof(xsem_host_timeline, sequence) == 24, "sequence");
_Static_assert(offsetof(xsem_host_timeline, silent) == 28, "silent");
_Static_assert(offsetof(xsem_host_timeline, abandoned) == 32, "abandoned");
_Static_assert(offsetof(xsem_host_timeline, last) == 40, "last");
_Static_assert(offsetof(xsem_host_timeline, places) == 512, "places");

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

/* ---- sleep of a wait between two checks: up to 64 checks without sleep, then one per millisecond */
typedef struct xsem_host_looks {
    int64_t began, deadline, count;
} xsem_host_looks;

static inline xsem_host_looks xsem_host_looks_begin(int64_t timeout_ns) {
    int64_t now = xsem_host_now_ns();
    xsem_host_looks looks = {now, timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns, 0};
    return looks;
}

/* Nanoseconds, at most one second; 0: the time is over. */
static inline int64_t xsem_host_looks_sleep(xsem_host_looks *looks) {
    int64_t now = xsem_host_now_ns();
    if (++looks->count > 64 + (now - looks->began) / 1000000) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        now = xsem_host_now_ns();
    }
    if (now >= looks->deadline) return 0;
    return looks->deadline - now < 1000000000 ? looks->deadline - now : 1000000000;
}

/* ---- binary semaphores */
static inline int xsem_host_binary_create(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

static inline void xsem_host_binary_signal(int fd) {
    struct pollfd poller = {fd, POLLOUT, 0};
    uint64_t one = 1;
    int saved = errno;
    if (poll(&poller, 1, 0) == 1 && (poller.revents & POLLOUT) && write(fd, &one, sizeof one) < 0) {
        /* EAGAIN: another signal brought the counter to its maximum meanwhile, so it is signalled. */
    }
    errno = saved;
}

/* 1: taken. 0: the time is over. -1: errno. timeout_ns < 0: no limit. */
static inline int xsem_host_binary_wait(int fd, int64_t timeout_ns) {
    xsem_host_looks looks = xsem_host_looks_begin(timeout_ns);
    int64_t sleep_ns = 0;
    for (;;) {
        struct pollfd poller = {fd, POLLIN, 0};
        int ready = poll(&poller, 1, (int)((sleep_ns + 999999) / 1000000));
        if (ready == 1) {
            uint64_t counter;
            struct iovec into = {&counter, sizeof counter};
            if (preadv2(fd, &into, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof counter) return 1;
            if (errno != EAGAIN && errno != EINTR) return -1;
        } else if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if ((sleep_ns = xsem_host_looks_sleep(&looks)) == 0) return 0;
    }
}

/* ---- sealed memfds */
static inline int xsem_host_sealed_memfd(const char *name, size_t size, const void *head, size_t head_bytes) {
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, flags); /* Linux before 6.3 */
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

/* `size` is a multiple of the page size. */
static inline int xsem_host_memory_create(size_t size) { return xsem_host_sealed_memfd("xsem-memory", size, "", 0); }

/* ---- the kind of an fd, as far as the contract allows it */
static inline int xsem_host_is_sealed(int fd, uint64_t size) {
    struct stat status;
    struct statvfs system;
    int seals = fcntl(fd, F_GET_SEALS);
    int flags = fcntl(fd, F_GETFL);
    const int read_only = F_SEAL_WRITE | 0x0010; /* F_SEAL_FUTURE_WRITE */
    return seals >= 0 && (seals & XSEM_HOST_SEALS) == XSEM_HOST_SEALS && (seals & read_only) == 0 && flags >= 0 &&
           (flags & O_ACCMODE) == O_RDWR && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size >= size && fstatvfs(fd, &system) == 0 &&
           system.f_bsize == (unsigned long)sysconf(_SC_PAGESIZE); /* huge pages can raise SIGBUS despite seals */
}

static inline xsem_host_kind xsem_host_recognise(int fd) {
    char path[64], target[256], line[256];
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
    if (strcmp(target, XSEM_HOST_TIMELINE_LINK) == 0) {
        xsem_host_timeline head;
        if (xsem_host_is_sealed(fd, XSEM_HOST_TIMELINE_BYTES) &&
            pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && head.magic == XSEM_HOST_MAGIC &&
            head.version == XSEM_HOST_VERSION && head.kind == XSEM_HOST_KIND_TIMELINE)
            return XSEM_HOST_TIMELINE;
        return XSEM_HOST_UNKNOWN;
    }
    return xsem_host_is_sealed(fd, 1) ? XSEM_HOST_MEMORY : XSEM_HOST_UNKNOWN;
}

/* 0: memory of at least `size` bytes. -1 with EINVAL: other fds. */
static inline int xsem_host_memory_check(int fd, uint64_t size) {
    if (xsem_host_recognise(fd) == XSEM_HOST_MEMORY && xsem_host_is_sealed(fd, size)) return 0;
    errno = EINVAL;
    return -1;
}

/* ---- timelines, mapped */
/* NULL with EINVAL if it is not a timeline. The mapping stays valid after the fd is closed. */
static inline xsem_host_timeline *xsem_host_timeline_open(int fd) {
    if (xsem_host_recognise(fd) != XSEM_HOST_TIMELINE) {
        errno = EINVAL;
        return NULL;
    }
    void *page = mmap(NULL, XSEM_HOST_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : (xsem_host_timeline *)page;
}

static inline void xsem_host_timeline_close(xsem_host_timeline *timeline) { munmap(timeline, XSEM_HOST_TIMELINE_BYTES); }

static inline uint64_t xsem_host_timeline_value(xsem_host_timeline *timeline) {
    uint64_t value = atomic_load_explicit(&timeline->value, memory_order_acquire);
    return atomic_load(&timeline->abandoned) == XSEM_HOST_ABANDONED ? atomic_load(&timeline->last) : value;
}

static inline void xsem_host_timeline_wake(xsem_host_timeline *timeline) {
    int saved = errno;
    syscall(SYS_futex, &timeline->sequence, FUTEX_WAKE_OP, INT_MAX, (void *)0, &timeline->sequence,
            FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0));
    errno = saved;
}

static inline void xsem_host_timeline_signal(xsem_host_timeline *timeline, uint64_t value) {
    if (atomic_load(&timeline->abandoned) == XSEM_HOST_ABANDONED) return;
    atomic_store_explicit(&timeline->value, value, memory_order_release);
    xsem_host_timeline_wake(timeline);
}

/* Ends the waits for values that no process will signal. */
static inline void xsem_host_timeline_abandon(xsem_host_timeline *timeline) {
    uint64_t last = atomic_load(&timeline->value); /* before the flag: another process may raise the value now */
    if (atomic_load(&timeline->abandoned) == XSEM_HOST_ABANDONED) return;
    atomic_store(&timeline->last, last);
    atomic_store(&timeline->abandoned, XSEM_HOST_ABANDONED);
    atomic_store(&timeline->value, last > UINT64_MAX - XSEM_HOST_RAISED_BY ? UINT64_MAX : last + XSEM_HOST_RAISED_BY);
    xsem_host_timeline_wake(timeline);
}

/* 1: met. 0: the time is over. -1 with EOWNERDEAD: the timeline was abandoned. timeout_ns < 0: no limit. */
static inline int xsem_host_timeline_wait(xsem_host_timeline *timeline, uint64_t value, int64_t timeout_ns) {
    xsem_host_looks looks = xsem_host_looks_begin(timeout_ns);
    for (;;) {
        uint32_t sequence = atomic_load_explicit(&timeline->sequence, memory_order_acquire);
        if (xsem_host_timeline_value(timeline) >= value) return 1;
        if (atomic_load(&timeline->abandoned) == XSEM_HOST_ABANDONED) {
            errno = EOWNERDEAD;
            return -1;
        }
        int64_t sleep_ns = xsem_host_looks_sleep(&looks);
        if (sleep_ns == 0) return 0;
        if (atomic_load(&timeline->silent)) {
            struct timespec pause = {0, XSEM_HOST_POLL_NS};
            while (xsem_host_timeline_value(timeline) < value && xsem_host_now_ns() < looks.deadline &&
                   atomic_load(&timeline->abandoned) != XSEM_HOST_ABANDONED)
                nanosleep(&pause, NULL);
            continue;
        }
        struct timespec timeout = {sleep_ns / 1000000000, sleep_ns % 1000000000};
        syscall(SYS_futex, &timeline->sequence, FUTEX_WAIT, sequence, &timeout, NULL, 0);
    }
}

/* ---- places: which processes hold a page */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static inline uint64_t xsem_host_start_time(void) { /* in clock ticks; 0: unknown */
    char line[1024], *at;
    unsigned long long started = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC), field;
    if (fd < 0) return 0;
    ssize_t length = read(fd, line, sizeof line - 1);
    close(fd);
    if (length <= 0) return 0;
    line[length] = 0;
    at = strrchr(line, ')'); /* the name of the program can contain any character */
    for (field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) sscanf(at, " %llu", &started);
    return started;
}

/* A process takes one place for a page, before it maps the page for writing. Returns the fd of the place. The place ends
 * with the last descriptor of its file description, so do not duplicate the fd, and close it in forked children. -1 with
 * EUSERS: all places are taken. */
static inline int xsem_host_place_take(int fd, int *number) {
    char path[64];
    int own, failed;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if ((own = open(path, O_RDWR | O_CLOEXEC)) < 0) return -1;
    for (*number = 0; *number < XSEM_HOST_PLACES; ++*number) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = XSEM_HOST_FIRST_LOCK + *number, .l_len = 1};
        struct {
            uint32_t pid, count;
            uint64_t started;
        } record;
        const off_t at = (off_t)offsetof(xsem_host_timeline, places) + *number * (off_t)sizeof record;
        if (fcntl(own, F_OFD_SETLK, &lock) != 0) {
            if (errno == EAGAIN || errno == EACCES) continue;
            break;
        }
        if (pread(own, &record, sizeof record, at) != (ssize_t)sizeof record) break;
        record.pid = (uint32_t)getpid();
        record.count++;
        record.started = xsem_host_start_time();
        if (pwrite(own, &record, sizeof record, at) != (ssize_t)sizeof record) break;
        return own;
    }
    failed = *number == XSEM_HOST_PLACES ? EUSERS : errno;
    close(own);
    errno = failed;
    return -1;
}

/* Leaves the place, so that no reader takes it for the place of an ended process. */
static inline void xsem_host_place_leave(int place, int number) {
    struct {
        uint32_t pid, count;
        uint64_t started;
    } record;
    const off_t at = (off_t)offsetof(xsem_host_timeline, places) + number * (off_t)sizeof record;
    if (pread(place, &record, sizeof record, at) == (ssize_t)sizeof record) {
        record.pid = 0;
        record.started = 0;
        if (pwrite(place, &record, sizeof record, at) < 0) {
            /* The record only names the process. */
        }
    }
    close(place);
}

/* 1: another process holds the page. 0: none. -1: errno. `place` is the own place, or any fd of a read-only holder. */
static inline int xsem_host_place_others(int place) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = XSEM_HOST_FIRST_LOCK, .l_len = XSEM_HOST_PLACES};
    return fcntl(place, F_OFD_GETLK, &lock) != 0 ? -1 : lock.l_type != F_UNLCK;
}

/* How many processes have taken a place until now, modulo 2^32. */
static inline uint32_t xsem_host_place_joined(const xsem_host_timeline *timeline) {
    uint32_t joined = 0;
    int number;
    for (number = 0; number < XSEM_HOST_PLACES; number++) joined += timeline->places[number].count;
    return joined;
}

#endif
