/* Shared by the parts of the layer. One lock guards the data of the layer. It is never held during a call of PoCL, because PoCL
 * calls back from its own threads.
 *
 * Order of the parts: common < layer < info < semaphore, memory < queue < commands. */
#ifndef SIMCL_SIM_H
#define SIMCL_SIM_H

#include "../common/payload.h"
#include "cl_abi.h"

#define MAX_DEVICES 16

/* Codes of NVIDIA's driver where OpenCL has none: an unknown fd, and a size beyond the memory. */
#define UNKNOWN_FD 999
#define TOO_BIG 1

/* ---- below: the functions of the loader or of the next layer */
typedef struct {
#define FUNCTION(name, place, result, parameters) result(*name) parameters;
#define OWN FUNCTION
    CL_FUNCTIONS
#undef FUNCTION
#undef OWN
} sim_functions;

extern sim_functions below;

/* The layer's functions of the same names. The library does not export them. */
#define FUNCTION(name, place, result, parameters)
#define OWN(name, place, result, parameters) result name parameters;
CL_FUNCTIONS
#undef FUNCTION
#undef OWN

/* ---- the process */
typedef struct {
    pthread_mutex_t lock;
    bool fd_taken;           /* an imported fd is closed */
    bool fd_kept;            /* it is closed with the imported object */
    bool deferred_release;   /* a semaphore may be released while its work is queued */
    bool unflushed;          /* work begins without a flush */
} sim_process;

extern sim_process sim;

/* SIMCL_MISSING names it. */
bool sim_missing(const char *name);
void *sim_extension_function(const char *name);

/* ---- each call that the layer changes: configured failures, and the log */
cl_int sim_enter(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
cl_int sim_leave(const char *name, cl_int code);

#define CALL(...)                                          \
    do {                                                   \
        cl_int refused_ = sim_enter(__func__, __VA_ARGS__); \
        if (refused_) return sim_leave(__func__, refused_); \
    } while (0)
#define RETURN(code) return sim_leave(__func__, (code))

/* ---- info */
/* PoCL's platform, changed to look like that of a GPU. */
bool sim_is_ours(cl_platform_id platform);
/* Its index among the devices of the platform; -1: a device of another platform. */
int sim_device_number(cl_device_id device);
/* The answer to a query, in the form of clGet…Info. */
cl_int sim_answer(const void *answer, size_t bytes, size_t size, void *value, size_t *size_ret);
/* The devices of the context, at most MAX_DEVICES; 0: not a context. */
cl_uint sim_devices_of(cl_context context, cl_device_id *devices);

/* ---- semaphores */
typedef struct {
    sim_object object;
    cl_context context;
    cl_device_id device;     /* the device of its context or of its list */
    cl_properties properties[2 * MAX_DEVICES + 8];
    size_t property_count;
    sim_payload payload;
    int kept_fd;             /* closed with the semaphore; -1: none */
    cl_uint references;
    int queued;
} sim_semaphore;

enum { SIM_SEMAPHORE = 1 };

/* Ends the process if it was released. */
cl_int sim_semaphore_of(cl_semaphore_khr handle, sim_semaphore **out);
/* Removes its failed work from the queue. */
void sim_end_failed(const sim_semaphore *semaphore);
/* With the lock held: its work has ended. */
void sim_semaphore_done(sim_semaphore *semaphore);
cl_semaphore_khr clCreateSemaphoreWithPropertiesKHR(cl_context, const cl_properties *, cl_int *);
cl_int clRetainSemaphoreKHR(cl_semaphore_khr);
cl_int clReleaseSemaphoreKHR(cl_semaphore_khr);
cl_int clGetSemaphoreInfoKHR(cl_semaphore_khr, cl_uint, size_t, void *, size_t *);
cl_int clGetSemaphoreHandleForTypeKHR(cl_semaphore_khr, cl_device_id, cl_uint, size_t, void *, size_t *);

/* Reads a list of devices up to its 0; NULL if one is not in the context. */
const cl_properties *sim_device_list(const cl_properties *at, cl_context context, cl_device_id *out, cl_uint *count);
/* The pointer that comes with an error. It must not be used. */
void *sim_error_pointer(void);

/* ---- queues */
cl_int clEnqueueWaitSemaphoresKHR(cl_command_queue, cl_uint, const cl_semaphore_khr *, const cl_ulong *, cl_uint,
                                  const cl_event *, cl_event *);
cl_int clEnqueueSignalSemaphoresKHR(cl_command_queue, cl_uint, const cl_semaphore_khr *, const cl_ulong *, cl_uint,
                                    const cl_event *, cl_event *);

/* Starts the enqueued work. */
void sim_flush(cl_command_queue queue);
void sim_flush_events(cl_uint count, const cl_event *events);

/* ---- memory */
/* A command uses it. Counts the use if it is imported and not acquired. */
void sim_used(cl_mem mem);
cl_int clEnqueueAcquireExternalMemObjectsKHR(cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);
cl_int clEnqueueReleaseExternalMemObjectsKHR(cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);

/* ---- counters; processes share them if SIMCL_COUNTERS names a file */
typedef struct {
    _Atomic uint64_t waits, signals;  /* done */
    _Atomic uint64_t unacquired;      /* commands that used external memory outside an acquire and a release */
} sim_counters;

extern sim_counters *sim_counted;

#endif
