/* An exporter of host objects without Python: creates a timeline and memory, sends both, and checks the frames.
 *
 * The objects are those of xsem's CPU device (docs/host-objects.md). receiver.py starts this program and negates the
 * frames. Frame n is drawn at 2n + 1 and negated at 2n + 2.
 *
 *     cc -std=c11 -I../c -I../../tests/support -o exporter exporter.c
 *     ./exporter SOCKET FRAMES
 */
#include "host_objects.h"
#include "xsem_send.h"

#include <stdlib.h>
#include <sys/un.h>

enum { PIXELS = 320 * 240 };
static const int64_t TIMEOUT_NS = 30 * (int64_t)1000000000;

static int failed(const char *what) {
    perror(what);
    return 1;
}

static int connect_to(const char *path) {
    struct sockaddr_un address;
    int connection;
    if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        int saved = errno;
        close(connection);
        return errno = saved, -1;
    }
    return connection;
}

int main(int argc, char **argv) {
    size_t size = PIXELS * sizeof(float);
    int connection, timeline_fd, memory_fd;
    unsigned char header[8];
    xsem_host_timeline *timeline;
    xsem_message message;
    float *pixels;
    long frames, frame, pixel, wrong = 0;
    if (argc != 3 || (frames = strtol(argv[2], NULL, 10)) <= 0) {
        fprintf(stderr, "usage: %s SOCKET FRAMES\n", argv[0]);
        return 2;
    }
    timeline_fd = xsem_host_timeline_create(0);
    if (timeline_fd < 0 || (timeline = xsem_host_timeline_open(timeline_fd)) == NULL) return failed("timeline");
    size = (size + 4095) / 4096 * 4096; /* memory is a whole number of pages */
    memory_fd = xsem_host_memory_create(size);
    if (memory_fd < 0) return failed("memory");
    pixels = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (pixels == MAP_FAILED) return failed("mmap");

    connection = connect_to(argv[1]);
    if (connection < 0) return failed(argv[1]);
    xsem_put(header, PIXELS, 4);
    xsem_put(header + 4, (uint64_t)frames, 4);
    xsem_message_init(&message);
    /* Objects of the CPU belong to no device: no UUID. */
    if (xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, timeline_fd, NULL, NULL) ||
        xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, memory_fd, size, 0, NULL, NULL) ||
        xsem_send(connection, &message, header, sizeof header))
        return failed("send");

    for (frame = 0; frame < frames; frame++) {
        for (pixel = 0; pixel < PIXELS; pixel++) pixels[pixel] = (float)(frame + 1);
        xsem_host_timeline_signal(timeline, (uint64_t)(2 * frame + 1));
        if (xsem_host_timeline_wait(timeline, (uint64_t)(2 * frame + 2), TIMEOUT_NS) != 1) {
            fprintf(stderr, "exporter: frame %ld is not negated after 30 s\n", frame);
            return 1;
        }
        for (pixel = 0; pixel < PIXELS; pixel++) {
            if (pixels[pixel] != (float)-(frame + 1)) {
                wrong++;
                break;
            }
        }
    }
    printf("exporter: %ld frames, %ld wrong\n", frames, wrong);
    return wrong != 0;
}
