/* Receiver of the messages of xsem.ipc, for C (C99) and C++ on Linux. docs/ipc.md specifies the format.
 *
 *     static unsigned char payload[XSEM_MAX_PAYLOAD];
 *     xsem_received message;
 *     if (xsem_receive(socket_fd, &message, payload, sizeof payload) != 0) perror("xsem_receive");
 *     for (index = 0; index < message.count; index++)
 *         import(message.objects[index].kind, message.objects[index].type, message.objects[index].fd);
 *     xsem_received_close(&message);
 *
 * On success the caller owns the file descriptors, which are close-on-exec: an import takes one over (set it to -1), and
 * xsem_received_close closes the rest. On failure every received file descriptor is closed. Functions return 0, or -1
 * with errno set:
 *
 *     EPROTO     the bytes are not a message, or the peer closed the socket within a message
 *     ENODATA    the peer closed the socket between messages, or an earlier failure ended the stream
 *     EMSGSIZE   the payload is longer than the buffer, or file descriptors were lost (raise `ulimit -n`)
 *     EAGAIN     SO_RCVTIMEO is set, and its time is over before the whole message has come
 *
 * After a failure in the middle of a message, the next byte of a stream does not begin a message. The stream then ends
 * for reading: what is queued is discarded, and its file descriptors are closed. Later calls fail with ENODATA.
 */
#ifndef XSEM_RECEIVE_H
#define XSEM_RECEIVE_H

#include "xsem_send.h"

#include <unistd.h>

#define XSEM_SCM_PIDFD 4 /* SO_PASSPIDFD: the kernel adds a file descriptor of the sender's process */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xsem_object {
    int kind; /* XSEM_SORT_SEMAPHORE or XSEM_SORT_MEMORY */
    int type; /* XSEM_SEMAPHORE_OPAQUE_FD, ...; XSEM_MEMORY_OPAQUE_FD, ... */
    int fd;   /* -1: a sync file that is already signalled */
    int dedicated;
    uint64_t allocation_size; /* memory: size of the exporter's allocation; semaphores: 0 */
    int has_device_uuid, has_driver_uuid;
    unsigned char device_uuid[16], driver_uuid[16];
    int has_drm_layout; /* dma-bufs only */
    xsem_drm_layout drm_layout;
} xsem_object;

typedef struct xsem_received {
    xsem_object objects[XSEM_MAX_DESCRIPTORS];
    int count;
    size_t payload_bytes;
} xsem_received;

static inline int xsem_all_zero(const unsigned char *at, int bytes) {
    while (bytes--)
        if (at[bytes]) return 0;
    return 1;
}

static inline void xsem_close_all(int *fds, int count) {
    while (count--) close(fds[count]);
}

/* Close the file descriptors that no import took over. */
static inline void xsem_received_close(xsem_received *message) {
    int index;
    for (index = 0; index < message->count; index++) {
        if (message->objects[index].fd >= 0) close(message->objects[index].fd);
        message->objects[index].fd = -1;
    }
}

/* Linux returns the bytes in the queue also after shutdown(), which lets the peer add no more. */
static inline void xsem_end_stream(int socket_fd) {
    unsigned char discarded[4096];
    ssize_t count;
    if (shutdown(socket_fd, SHUT_RD) != 0) return;
    do count = recv(socket_fd, discarded, sizeof discarded, MSG_DONTWAIT);
    while (count > 0 || (count < 0 && errno == EINTR));
}

/* One recvmsg call: at most `room` bytes, and the file descriptors that come with them behind fds[*fd_count]. *error
 * becomes the error of a part that came, but not as a whole. */
static inline ssize_t xsem_receive_part(int socket_fd, void *into, size_t room, int *fds, int *fd_count,
                                        int64_t deadline_ms, int *error) {
    union {
        struct cmsghdr aligned;
        unsigned char bytes[CMSG_SPACE(sizeof(int) * (XSEM_MAX_DESCRIPTORS + 1)) + 512];
    } control;
    struct msghdr header;
    struct iovec part;
    struct cmsghdr *each;
    ssize_t count;
    memset(&header, 0, sizeof header);
    part.iov_base = into;
    part.iov_len = room;
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    while ((count = recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
        if (xsem_wait(socket_fd, POLLIN, deadline_ms) != 0) return -1;
    }
    if (header.msg_flags & MSG_TRUNC) *error = EPROTO;
    if (header.msg_flags & MSG_CTRUNC) *error = EMSGSIZE;
    for (each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
        size_t index, number;
        if (each->cmsg_level != SOL_SOCKET || (each->cmsg_type != SCM_RIGHTS && each->cmsg_type != XSEM_SCM_PIDFD))
            continue;
        number = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (index = 0; index < number; index++) {
            int fd;
            memcpy(&fd, CMSG_DATA(each) + index * sizeof(int), sizeof fd);
            if (each->cmsg_type == XSEM_SCM_PIDFD) {
                if (fd >= 0) close(fd); /* the error code of a sender that has ended is negative */
            } else if (*fd_count < XSEM_MAX_DESCRIPTORS) {
                fds[(*fd_count)++] = fd;
            } else {
                close(fd);
                *error = EMSGSIZE;
            }
        }
    }
    return count;
}

/* `have`: number of bytes of the message that were received. */
static inline int xsem_refused(int socket_fd, int type, size_t have, int *fds, int fd_count, int error) {
    xsem_close_all(fds, fd_count);
    if (have && type == SOCK_STREAM) xsem_end_stream(socket_fd);
    errno = error;
    return -1;
}

static inline int xsem_parse(const unsigned char *record, xsem_object *object, int *fds, int fd_count, int *used) {
    uint64_t flags = xsem_get(record + 2, 2);
    int carries = (flags & XSEM_CARRIES_FD) != 0, known;
    object->kind = record[0];
    object->type = record[1];
    object->dedicated = (flags & XSEM_DEDICATED) != 0;
    object->allocation_size = xsem_get(record + 8, 8);
    object->has_device_uuid = (flags & XSEM_HAS_DEVICE_UUID) != 0;
    object->has_driver_uuid = (flags & XSEM_HAS_DRIVER_UUID) != 0;
    memcpy(object->device_uuid, record + 16, 16);
    memcpy(object->driver_uuid, record + 32, 16);
    if (flags > 15 || !xsem_all_zero(record + 4, 4) || !xsem_all_zero(record + 48, 16)) return -1;
    if (!object->has_device_uuid && !xsem_all_zero(record + 16, 16)) return -1;
    if (!object->has_driver_uuid && !xsem_all_zero(record + 32, 16)) return -1;
    if (object->kind == XSEM_SORT_SEMAPHORE) {
        known = object->type == XSEM_SEMAPHORE_OPAQUE_FD || object->type == XSEM_TIMELINE_SEMAPHORE_FD ||
                object->type == XSEM_SYNC_FD || object->type == XSEM_HOST_TIMELINE_FD;
        if (!known || object->allocation_size || object->dedicated) return -1;
        if (!carries && object->type != XSEM_SYNC_FD) return -1;
    } else if (object->kind == XSEM_SORT_MEMORY) {
        known = object->type == XSEM_MEMORY_OPAQUE_FD || object->type == XSEM_DMABUF_FD ||
                object->type == XSEM_HOST_MEMORY_FD;
        if (!known || !object->allocation_size || !carries) return -1;
        if (object->dedicated && object->type == XSEM_DMABUF_FD) return -1;
    } else {
        return -1;
    }
    object->fd = -1;
    if (carries) {
        if (*used >= fd_count) return -1;
        object->fd = fds[(*used)++];
    }
    return 0;
}

/* The record of a layout directly behind the record of its memory. */
static inline int xsem_parse_drm_layout(const unsigned char *record, xsem_object *memory) {
    xsem_drm_layout *layout = &memory->drm_layout;
    int index, used;
    if (memory->type != XSEM_DMABUF_FD || xsem_get(record + 2, 2) || record[1] > XSEM_MAX_DRM_PLANES) return -1;
    layout->plane_count = record[1];
    layout->fourcc = (uint32_t)xsem_get(record + 4, 4);
    layout->modifier = xsem_get(record + 8, 8);
    used = 12 * layout->plane_count;
    for (index = 0; index < layout->plane_count; index++) {
        layout->planes[index].offset = xsem_get(record + 16 + 12 * index, 8);
        layout->planes[index].pitch = (uint32_t)xsem_get(record + 24 + 12 * index, 4);
    }
    if (!xsem_drm_layout_is_valid(layout, memory->allocation_size) || !xsem_all_zero(record + 16 + used, 48 - used))
        return -1;
    memory->has_drm_layout = 1;
    return 0;
}

/* Receive one message, and no byte of the next. The call waits for the message, also on a non-blocking socket. */
static inline int xsem_receive(int socket_fd, xsem_received *message, void *payload, size_t payload_room) {
    unsigned char bytes[XSEM_HEADER_BYTES + XSEM_MAX_DESCRIPTORS * XSEM_RECORD_BYTES + XSEM_MAX_PAYLOAD];
    int fds[XSEM_MAX_DESCRIPTORS], fd_count = 0, used = 0, index, type = 0, count = 0, before = 0;
    size_t have = 0, total = XSEM_HEADER_BYTES, head = XSEM_HEADER_BYTES, payload_bytes = 0;
    uint64_t descriptors = 0, announced = 0;
    int64_t deadline_ms;
    int error = 0;
    socklen_t size = sizeof type;
    memset(message, 0, sizeof *message);
    if (getsockopt(socket_fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return -1;
    deadline_ms = xsem_deadline_ms(socket_fd, SO_RCVTIMEO);
    while (have < total) {
        size_t room = type == SOCK_SEQPACKET ? sizeof bytes - have : total - have;
        ssize_t part = xsem_receive_part(socket_fd, bytes + have, room, fds, &fd_count, deadline_ms, &error);
        if (part < 0) return xsem_refused(socket_fd, type, have, fds, fd_count, errno);
        have += (size_t)part;
        if (part == 0 && !error) error = have || fd_count ? EPROTO : ENODATA;
        if (error) return xsem_refused(socket_fd, type, have, fds, fd_count, error);
        if (total == XSEM_HEADER_BYTES && have >= XSEM_HEADER_BYTES) {
            descriptors = xsem_get(bytes + 12, 2);
            announced = xsem_get(bytes + 14, 2);
            payload_bytes = (size_t)xsem_get(bytes + 16, 4);
            if (memcmp(bytes, "XSEM", 4) || xsem_get(bytes + 4, 2) != XSEM_VERSION ||
                xsem_get(bytes + 6, 2) != XSEM_HEADER_BYTES || descriptors > XSEM_MAX_DESCRIPTORS ||
                announced > descriptors || payload_bytes > XSEM_MAX_PAYLOAD || !xsem_all_zero(bytes + 20, 12))
                return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
            head = XSEM_HEADER_BYTES + (size_t)descriptors * XSEM_RECORD_BYTES;
            total = head + payload_bytes;
            if (xsem_get(bytes + 8, 4) != total) return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
        }
        if (type == SOCK_SEQPACKET && have != total) return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
    }
    if (announced != (uint64_t)fd_count) return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
    if (payload_bytes > payload_room) return xsem_refused(socket_fd, type, have, fds, fd_count, EMSGSIZE);
    for (index = 0; index < (int)descriptors; index++) {
        const unsigned char *record = bytes + XSEM_HEADER_BYTES + index * XSEM_RECORD_BYTES;
        int failed = record[0] == XSEM_SORT_DRM_LAYOUT && before == XSEM_SORT_MEMORY
                         ? xsem_parse_drm_layout(record, &message->objects[count - 1])
                         : xsem_parse(record, &message->objects[count++], fds, fd_count, &used);
        before = record[0];
        if (failed) {
            memset(message, 0, sizeof *message);
            return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
        }
    }
    if (used != fd_count) {
        memset(message, 0, sizeof *message);
        return xsem_refused(socket_fd, type, have, fds, fd_count, EPROTO);
    }
    message->count = count;
    message->payload_bytes = payload_bytes;
    if (payload_bytes) memcpy(payload, bytes + head, payload_bytes);
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
