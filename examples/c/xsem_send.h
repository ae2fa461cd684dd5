/* Send semaphores and memory to a Python process that calls xsem.ipc.receive(): docs/ipc.md, version 1.
 *
 * Header only, C99 and C++17, POSIX. Usage:
 *
 *     xsem_message message;
 *     xsem_message_init(&message);
 *     xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, sem_fd, device_uuid, NULL);
 *     xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, mem_fd, allocation_size, 0, device_uuid, NULL);
 *     // a dma-buf with an image: XSEM_DMABUF_FD, then xsem_add_drm_layout(&message, &layout)
 *     if (xsem_send(socket_fd, &message, &format, sizeof format) != 0) perror("xsem_send");
 *
 * The caller keeps ownership of the file descriptors, on success and on failure. The kernel duplicates them for the
 * receiver. Functions return 0, or -1 with errno set. A UUID has the 16 bytes of VkPhysicalDeviceIDProperties.
 * NULL: not known. xsem_send fails with EAGAIN if SO_SNDTIMEO is set and its time is over before the whole message is
 * sent. After a failure in the middle of a message, a stream is shut down for writing, and later calls fail with EPIPE.
 */
#ifndef XSEM_SEND_H
#define XSEM_SEND_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XSEM_VERSION 1
#define XSEM_HEADER_BYTES 32
#define XSEM_RECORD_BYTES 64
#define XSEM_MAX_DESCRIPTORS 128
#define XSEM_MAX_PAYLOAD 65536
#define XSEM_MAX_DRM_PLANES 4

#define XSEM_SORT_SEMAPHORE 1
#define XSEM_SORT_MEMORY 2
#define XSEM_SORT_DRM_LAYOUT 3

#define XSEM_SEMAPHORE_OPAQUE_FD 1
#define XSEM_TIMELINE_SEMAPHORE_FD 9
#define XSEM_SYNC_FD 11
#define XSEM_HOST_TIMELINE_FD 128
#define XSEM_MEMORY_OPAQUE_FD 1
#define XSEM_DMABUF_FD 9
#define XSEM_HOST_MEMORY_FD 128

#define XSEM_HAS_DEVICE_UUID 1
#define XSEM_HAS_DRIVER_UUID 2
#define XSEM_DEDICATED 4
#define XSEM_CARRIES_FD 8

typedef struct xsem_message {
    unsigned char bytes[XSEM_HEADER_BYTES + XSEM_MAX_DESCRIPTORS * XSEM_RECORD_BYTES];
    int fds[XSEM_MAX_DESCRIPTORS];
    int descriptors;
    int fd_count;
} xsem_message;

/* Layout of the image in a dma-buf: the terms of drm_fourcc.h. */
typedef struct xsem_drm_layout {
    uint64_t modifier; /* DRM format modifier, not DRM_FORMAT_MOD_INVALID */
    uint32_t fourcc;   /* DRM format code; 0: not known */
    int plane_count;   /* 1 to XSEM_MAX_DRM_PLANES */
    struct {
        uint64_t offset; /* bytes from the start of the dma-buf */
        uint32_t pitch;  /* bytes from row to row, not 0 */
    } planes[XSEM_MAX_DRM_PLANES];
} xsem_drm_layout;

static inline void xsem_put(unsigned char *at, uint64_t value, int bytes) {
    int index;
    for (index = 0; index < bytes; index++) at[index] = (unsigned char)(value >> (8 * index));
}

static inline uint64_t xsem_get(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | at[bytes];
    return value;
}

static inline int xsem_drm_layout_is_valid(const xsem_drm_layout *layout, uint64_t allocation_size) {
    int index;
    if (layout->plane_count < 1 || layout->plane_count > XSEM_MAX_DRM_PLANES ||
        layout->modifier == 0x00ffffffffffffffu)
        return 0;
    for (index = 0; index < layout->plane_count; index++)
        if (layout->planes[index].pitch == 0 || layout->planes[index].offset >= allocation_size) return 0;
    return 1;
}

static inline void xsem_message_init(xsem_message *message) { memset(message, 0, sizeof *message); }

static inline int xsem_add(xsem_message *message, int sort, int type, int fd, uint64_t size, int flags,
                           const void *device_uuid, const void *driver_uuid) {
    unsigned char *record;
    if (message->descriptors >= XSEM_MAX_DESCRIPTORS) {
        errno = E2BIG;
        return -1;
    }
    if (fd < 0 && !(sort == XSEM_SORT_SEMAPHORE && type == XSEM_SYNC_FD && fd == -1)) {
        errno = EBADF;
        return -1;
    }
    record = message->bytes + XSEM_HEADER_BYTES + message->descriptors * XSEM_RECORD_BYTES;
    if (fd >= 0) {
        flags |= XSEM_CARRIES_FD;
        message->fds[message->fd_count++] = fd;
    }
    if (device_uuid) {
        flags |= XSEM_HAS_DEVICE_UUID;
        memcpy(record + 16, device_uuid, 16);
    }
    if (driver_uuid) {
        flags |= XSEM_HAS_DRIVER_UUID;
        memcpy(record + 32, driver_uuid, 16);
    }
    record[0] = (unsigned char)sort;
    record[1] = (unsigned char)type;
    xsem_put(record + 2, (uint64_t)flags, 2);
    xsem_put(record + 8, size, 8);
    message->descriptors++;
    return 0;
}

/* `type`: XSEM_SEMAPHORE_OPAQUE_FD, XSEM_TIMELINE_SEMAPHORE_FD, XSEM_SYNC_FD or XSEM_HOST_TIMELINE_FD. The fd of
 * XSEM_SYNC_FD may be -1, which means already signalled. A timeline in host memory belongs to no device: pass NULL. */
static inline int xsem_add_semaphore(xsem_message *message, int type, int fd, const void *device_uuid,
                                     const void *driver_uuid) {
    return xsem_add(message, XSEM_SORT_SEMAPHORE, type, fd, 0, 0, device_uuid, driver_uuid);
}

/* `type`: XSEM_MEMORY_OPAQUE_FD, XSEM_DMABUF_FD or XSEM_HOST_MEMORY_FD. `allocation_size`: size of the allocation in
 * bytes (VkMemoryAllocateInfo::allocationSize), not the size that a buffer in it needs. */
static inline int xsem_add_memory(xsem_message *message, int type, int fd, uint64_t allocation_size, int dedicated,
                                  const void *device_uuid, const void *driver_uuid) {
    if (allocation_size == 0 || (dedicated && type == XSEM_DMABUF_FD)) {
        errno = EINVAL;
        return -1;
    }
    return xsem_add(message, XSEM_SORT_MEMORY, type, fd, allocation_size, dedicated ? XSEM_DEDICATED : 0, device_uuid,
                    driver_uuid);
}

/* Add the layout of the image in the dma-buf that the last call added. The layout counts as a descriptor, so a message
 * with layouts holds fewer objects than XSEM_MAX_DESCRIPTORS. */
static inline int xsem_add_drm_layout(xsem_message *message, const xsem_drm_layout *layout) {
    unsigned char *record = message->bytes + XSEM_HEADER_BYTES + message->descriptors * XSEM_RECORD_BYTES;
    int index;
    /* The record before, or the empty header: xsem_send fills it. */
    const unsigned char *memory = message->descriptors ? record - XSEM_RECORD_BYTES : message->bytes;
    if (memory[0] != XSEM_SORT_MEMORY || memory[1] != XSEM_DMABUF_FD ||
        !xsem_drm_layout_is_valid(layout, xsem_get(memory + 8, 8))) {
        errno = EINVAL;
        return -1;
    }
    if (message->descriptors >= XSEM_MAX_DESCRIPTORS) {
        errno = E2BIG;
        return -1;
    }
    record[0] = XSEM_SORT_DRM_LAYOUT;
    record[1] = (unsigned char)layout->plane_count;
    xsem_put(record + 4, layout->fourcc, 4);
    xsem_put(record + 8, layout->modifier, 8);
    for (index = 0; index < layout->plane_count; index++) {
        xsem_put(record + 16 + 12 * index, layout->planes[index].offset, 8);
        xsem_put(record + 24 + 12 * index, layout->planes[index].pitch, 4);
    }
    message->descriptors++;
    return 0;
}

static inline int64_t xsem_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The end of the time of SO_RCVTIMEO or SO_SNDTIMEO, which begins now. -1: the socket has no limit. */
static inline int64_t xsem_deadline_ms(int socket_fd, int option) {
    struct timeval limit;
    socklen_t size = sizeof limit;
    memset(&limit, 0, sizeof limit);
    if (getsockopt(socket_fd, SOL_SOCKET, option, &limit, &size) != 0 || (limit.tv_sec == 0 && limit.tv_usec == 0))
        return -1;
    return xsem_now_ms() + (int64_t)limit.tv_sec * 1000 + (limit.tv_usec + 999) / 1000;
}

/* Wait until the socket is ready. */
static inline int xsem_wait(int socket_fd, short events, int64_t deadline_ms) {
    for (;;) {
        struct pollfd ready;
        int64_t left = deadline_ms < 0 ? -1 : deadline_ms - xsem_now_ms();
        int count;
        if (deadline_ms >= 0 && left < 0) left = 0;
        if (left > 1000000) left = 1000000;
        ready.fd = socket_fd;
        ready.events = events;
        ready.revents = 0;
        count = poll(&ready, 1, (int)left);
        if (count > 0) return 0;
        if (count < 0 && errno != EINTR) return -1;
        if (count == 0 && left == 0) {
            errno = EAGAIN;
            return -1;
        }
    }
}

/* The receiver would parse the rest of a message as the start of the next one. */
static inline int xsem_send_failed(int socket_fd, size_t sent) {
    int saved = errno, type = 0;
    socklen_t size = sizeof type;
    if (sent && getsockopt(socket_fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM)
        shutdown(socket_fd, SHUT_WR);
    errno = saved;
    return -1;
}

/* Send everything, and wait while the socket is full, also on a non-blocking socket. */
static inline int xsem_send(int socket_fd, xsem_message *message, const void *payload, size_t payload_bytes) {
    union {
        struct cmsghdr aligned;
        unsigned char bytes[CMSG_SPACE(sizeof(int) * XSEM_MAX_DESCRIPTORS)];
    } control;
    size_t head = XSEM_HEADER_BYTES + (size_t)message->descriptors * XSEM_RECORD_BYTES, sent = 0, total;
    int64_t deadline_ms = xsem_deadline_ms(socket_fd, SO_SNDTIMEO);
    if (payload_bytes > XSEM_MAX_PAYLOAD || (payload_bytes && !payload)) {
        errno = EMSGSIZE;
        return -1;
    }
    total = head + payload_bytes;
    memcpy(message->bytes, "XSEM", 4);
    xsem_put(message->bytes + 4, XSEM_VERSION, 2);
    xsem_put(message->bytes + 6, XSEM_HEADER_BYTES, 2);
    xsem_put(message->bytes + 8, total, 4);
    xsem_put(message->bytes + 12, (uint64_t)message->descriptors, 2);
    xsem_put(message->bytes + 14, (uint64_t)message->fd_count, 2);
    xsem_put(message->bytes + 16, payload_bytes, 4);
    while (sent < total) {
        struct iovec parts[2];
        struct msghdr header;
        ssize_t count;
        int used = 0;
        memset(&header, 0, sizeof header);
        if (sent < head) {
            parts[used].iov_base = message->bytes + sent;
            parts[used++].iov_len = head - sent;
        }
        if (payload_bytes) {
            size_t skip = sent > head ? sent - head : 0;
            parts[used].iov_base = (unsigned char *)(uintptr_t)payload + skip;
            parts[used++].iov_len = payload_bytes - skip;
        }
        header.msg_iov = parts;
        header.msg_iovlen = (size_t)used;
        if (sent == 0 && message->fd_count) { /* the first byte carries the file descriptors */
            struct cmsghdr *rights;
            memset(&control, 0, sizeof control);
            header.msg_control = control.bytes;
            header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)message->fd_count);
            rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)message->fd_count);
            memcpy(CMSG_DATA(rights), message->fds, sizeof(int) * (size_t)message->fd_count);
        }
        count = sendmsg(socket_fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            sent += (size_t)count;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (xsem_wait(socket_fd, POLLOUT, deadline_ms) != 0) return xsem_send_failed(socket_fd, sent);
        } else if (errno != EINTR) {
            return xsem_send_failed(socket_fd, sent);
        }
    }
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
