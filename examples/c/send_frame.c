/* An exporter without Python: sends one timeline and one buffer to the process that listens on a Unix socket.
 *
 *     cc -std=c99 -o send_frame send_frame.c && ./send_frame /run/viewer.sock TIMELINE_FD MEMORY_FD BYTES WIDTH HEIGHT
 *
 * The Python side:
 *
 *     with ipc.receive(connection) as message:
 *         width, height = struct.unpack("<II", message.payload)
 */
#define _POSIX_C_SOURCE 200809L
#include "xsem_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_un address;
    xsem_message message;
    unsigned char format[8];
    int connection, failed;
    if (argc != 7 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: %s SOCKET TIMELINE_FD MEMORY_FD BYTES WIDTH HEIGHT\n", argv[0]);
        return 2;
    }
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, argv[1]);
    connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(argv[1]);
        return 1;
    }
    xsem_put(format, strtoull(argv[5], NULL, 10), 4);
    xsem_put(format + 4, strtoull(argv[6], NULL, 10), 4);
    xsem_message_init(&message);
    failed = xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, atoi(argv[2]), NULL, NULL) ||
             xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, atoi(argv[3]), strtoull(argv[4], NULL, 10), 0, NULL, NULL) ||
             xsem_send(connection, &message, format, sizeof format);
    if (failed) perror("xsem_send");
    close(connection);
    return failed ? 1 : 0;
}
