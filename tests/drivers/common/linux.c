#ifndef _WIN32
#include "common.h"

#define LOG_FD_FROM 960

int sim_thread_id(void) { return (int)syscall(SYS_gettid); }

int sim_open_log(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_FROM);
    if (high < 0) return fd;
    close(fd);
    return high;
}

bool sim_write_log(int file, const char *line, size_t length) { return write(file, line, length) == (ssize_t)length; }

void sim_close_handle(sim_handle handle) { close(handle); }

/* ---- pages */
static void *pages_or_null(void *map) { return map == MAP_FAILED ? NULL : map; }

void *sim_pages_new(size_t size) {
    return pages_or_null(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

void *sim_pages_reserve(size_t size) {
    return pages_or_null(mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

void sim_pages_free(void *map, size_t size) { munmap(map, size); }

/* ---- counters */
void *sim_shared(void *own, size_t size) {
    const char *path = sim_setting("COUNTERS");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return own;
    void *page = ftruncate(fd, (off_t)size) == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return page == MAP_FAILED ? own : page;
}
#endif
