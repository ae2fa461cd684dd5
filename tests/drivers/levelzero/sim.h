/* Shared by the parts of the stand-in. One lock guards everything. It is never held while work runs or a wait sleeps.
 *
 * Order of the parts: common < log < driver < event < memory, semaphore, image < work < list < append. */
#ifndef SIMZE_SIM_H
#define SIMZE_SIM_H

#include "../common/payload.h"
#include "ze_abi.h"

#define MAX_DEVICES 16
#define MAX_GROUPS 2
#define MAX_TILES 4
#define MAX_PATTERN 128u

/* ---- objects */
typedef enum {
    SIM_DRIVER = 1, SIM_DEVICE, SIM_CONTEXT, SIM_QUEUE, SIM_LIST, SIM_FENCE, SIM_POOL, SIM_EVENT, SIM_IMAGE, SIM_SEMAPHORE
} sim_kind;

/* NULL if it is not one of this kind; ends the process if it is destroyed. */
void *sim_find(const void *handle, int kind);
/* The same for a handle that must not be NULL. */
ze_result_t sim_get(const void *handle, int kind, void *out);

/* ---- each call: refused before it acts (not initialised, configured failure), and logged */
enum { CALL_ANY = 1 };
ze_result_t sim_enter(const char *name, int flags, const char *format, ...) SIM_PRINTF(3, 4);
ze_result_t sim_leave(const char *name, ze_result_t code);

#define CALL_AS(flags, ...)                                              \
    do {                                                                 \
        ze_result_t refused_ = sim_enter(__func__, flags, __VA_ARGS__);  \
        if (refused_) return sim_leave(__func__, refused_);              \
        pthread_mutex_lock(&sim.lock);                                   \
    } while (0)
#define CALL(...) CALL_AS(0, __VA_ARGS__)
#define RETURN(code)                         \
    do {                                     \
        ze_result_t result_ = (code);        \
        pthread_mutex_unlock(&sim.lock);     \
        return sim_leave(__func__, result_); \
    } while (0)
#define REFUSE_IF(condition, code)           \
    do {                                     \
        if (condition) RETURN(code);         \
    } while (0)
#define NEEDS(pointer) REFUSE_IF(!(pointer), ZE_RESULT_ERROR_INVALID_NULL_POINTER)
#define TRY(expression)                      \
    do {                                     \
        ze_result_t tried_ = (expression);   \
        if (tried_) RETURN(tried_);          \
    } while (0)

/* ---- counters */
typedef struct {
    _Atomic uint64_t let_through;    /* waits that passed without a signal */
    _Atomic uint64_t waits, signals; /* done */
    _Atomic uint64_t overlaps;       /* calls on a list during another call on it */
} sim_counters;

/* ---- the process */
typedef enum { CONTROLLER_NONE, CONTROLLER_FIFO, CONTROLLER_LIFO } sim_controller_kind;
typedef enum { FD_OPEN, FD_ON_SUCCESS, FD_CLOSED } sim_fd_fate;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;          /* an operation was completed */
    bool initialised;
    bool intel, windows, guard, no_address, no_table, engines, no_reset, sticky, no_wait_for_0, host_functions, syncobjs, pool, keeps_exports, tiles;
    sim_fd_fate fd_fate;
    sim_controller_kind controller;
    uint32_t api, driver_version, memory_types, export_types, queues, copy_queues, append_us, lag_us, entry_us;
    bool images, compresses, no_d3d11_fence;
    uint32_t ip_version, sub_devices;
    int device_count;
    int blocked;                     /* workers in a wait for a semaphore */
    sim_counters *counters;
} sim_process;

extern sim_process sim;
void sim_settings(void);

typedef struct sim_driver {
    sim_object object;
} sim_driver;

typedef struct sim_device {
    sim_object object;
    int number;
    uint32_t tile;                   /* 0: the whole device; else the number of the sub-device, from 1 on */
} sim_device;

typedef struct sim_context {
    sim_object object;
    int users;                       /* number of its objects */
} sim_context;

/* Sleeps without the lock until a change. False: the time is over. deadline_ns is a time of xsem_host_now_ns. */
bool sim_sleep(int64_t deadline_ns);
int64_t sim_deadline(uint64_t timeout_ns);

/* ---- events */
typedef struct sim_pool {
    sim_object object;
    sim_context *context;
    uint32_t flags, count;
    struct sim_event **slot;
} sim_pool;

typedef struct sim_event {
    sim_object object;
    sim_pool *pool;
    uint32_t index;
    bool signalled;
    int queued;                      /* operations that wait for it or signal it */
} sim_event;

ze_result_t sim_events(sim_event *const *events, uint32_t count);

/* ---- memory */
typedef struct sim_allocation {
    uintptr_t address;
    size_t size;
    char *data;                      /* address for reads and writes of this process */
    int type;                        /* ZE_MEMORY_TYPE_… */
    sim_context *context;
    sim_device *device;
    uint64_t id;
    void *map, *guard;
    size_t map_size, guard_size;
    bool of_program;                 /* the pages are the program's */
    int queued;                      /* operations that use it */
    uint32_t exports;                /* flags of its ze_external_memory_export_desc_t */
    int file, exported;              /* its file and the fd that the driver keeps for exports; -1: none */
    struct sim_allocation *pool;     /* contains this allocation */
    size_t used;                     /* of a pool: bytes given out */
    int chunks;                      /* of a pool: its allocations */
} sim_allocation;

sim_allocation *sim_allocation_of(const void *address);
/* The address for reads and writes of work. Ends the process if the range leaves its allocation. */
char *sim_data(const void *address, size_t size, sim_allocation **out);
/* Maps the memory of an import structure and handles its fd. `*map` stays NULL if the chain has no such structure. `*exports`
 * receives the flags of an export structure; NULL refuses this structure. */
ze_result_t sim_import(const void *chain, void **map, size_t *size, uint32_t *exports);

/* ---- images: linear, row after row */
typedef struct sim_image {
    sim_object object;
    sim_context *context;
    ze_image_desc_t desc;
    size_t element, row, slice, size, map_size;
    uint32_t width, height, depth;
    char *data;
    int queued;
} sim_image;

/* ---- semaphores */
typedef struct sim_semaphore {
    sim_object object;
    uint32_t type;                   /* the imported type */
    sim_payload payload;
    bool satisfied;                  /* one wait on this handle has been met */
    int queued;
} sim_semaphore;

#ifdef _WIN32
/* A handle of its own to the object; NULL: it does not exist. The caller keeps its handle. */
HANDLE sim_nt_open(const void *handle, const wchar_t *name);
#endif
/* One look at a wait, with the lock; marks the handle if the wait passes. */
bool sim_semaphore_passes(sim_semaphore *semaphore, uint64_t value);
/* On a worker, without the lock. A wait sleeps until it is met. */
void sim_semaphore_wait(sim_semaphore *semaphore, uint64_t value);
void sim_semaphore_signal(sim_semaphore *semaphore, uint64_t value);

/* ---- fences */
typedef struct sim_fence {
    sim_object object;
    ze_command_queue_handle_t queue;
    bool signalled;
    int queued;
} sim_fence;

#endif
