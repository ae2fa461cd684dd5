/* Calls of the operating system: linux.c, windows.c. */
#ifndef SIM_SYSTEM_H
#define SIM_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef _WIN32
#include "../../support/host_objects_windows.h"

#include <unistd.h>

#include "threads_windows.h"

#define EXPORT __declspec(dllexport)
#define SIM_PRINTF(format_at, first) __attribute__((format(gnu_printf, format_at, first)))
typedef HANDLE sim_handle;
#define NO_HANDLE NULL
#else
#include "../../support/host_objects.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))
#define SIM_PRINTF(format_at, first) __attribute__((format(printf, format_at, first)))
typedef int sim_handle;
#define NO_HANDLE (-1)
#endif

int sim_thread_id(void);

/* A file for whole lines at its end, or -1. Its number is outside the range that programs check. */
int sim_open_log(const char *path);
bool sim_write_log(int file, const char *line, size_t length);

void sim_close_handle(sim_handle handle);

/* ---- pages: whole pages of this process, which further views can share */
/* Zero bytes, readable and writable; NULL: out of memory. */
void *sim_pages_new(size_t size);
/* Addresses without access; NULL: out of memory. */
void *sim_pages_reserve(size_t size);
void sim_pages_free(void *map, size_t size);

#endif
