/* What the parts of the layer share. One lock guards what is the layer's own; it is never held while PoCL is called, which
 * calls back from its own threads.
 *
 * Order of the parts: common < layer < info < semaphore, memory < queue < commands. */
#ifndef SIMCL_SIM_H
#define SIMCL_SIM_H

#include "../common/common.h"
#include "cl_abi.h"

#define MAX_DEVICES 16
#define FD_FROM 700 /* eventfds are kept out of the way of the numbers that programs look at */

/* What NVIDIA's driver answers where OpenCL has no code: an fd that it does not know, and a size beyond the memory. */
#define UNKNOWN_FD 999
#define TOO_BIG 1

/* ---- what is below: the loader's own functions, or the next layer's */
typedef struct {
#define FUNCTION(name, place, result, parameters) result(*name) parameters;
#define OWN FUNCTION
    CL_FUNCTIONS
#undef FUNCTION
#undef OWN
} sim_functions;

extern sim_functions below;

/* The functions of the same names that are the layer's own; the library keeps them to itself. */
#define FUNCTION(name, place, result, parameters)
#define OWN(name, place, result, parameters) result name parameters;
CL_FUNCTIONS
#undef FUNCTION
#undef OWN

/* ---- the process */
typedef struct {
    pthread_mutex_t lock;
    bool fd_taken;           /* an imported fd is closed */
    bool fd_kept;            /* it is closed when what was imported goes */
    bool deferred_release;   /* a semaphore may be released while work of it is queued */
    bool unflushed;          /* what is not flushed begins all the same */
} sim_process;

extern sim_process sim;

/* SIMCL_MISSING names it. */
bool sim_missing(const char *name);
void *sim_extension_function(const char *name);

/* ---- each call that the layer does not only pass on: made to fail, noted in the log */
cl_int sim_enter(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
cl_int sim_leave(const char *name, cl_int code);

#define CALL(...)                                          \
    do {                                                   \
        cl_int refused_ = sim_enter(__func__, __VA_ARGS__); \
        if (refused_) return sim_leave(__func__, refused_); \
    } while (0)
#define RETURN(code) return sim_leave(__func__, (code))

/* ---- faults on purpose: SIMCL_FAULT names one of faults.def. Off unless asked for: one comparison each. */
typedef enum {
    FAULT_none,
#define FAULT(name, text) FAULT_##name,
#include "faults.def"
#undef FAULT
} sim_fault;

extern sim_fault sim_planted;
#define FAULTY(name) (__builtin_expect(sim_planted == FAULT_##name, 0))

/* ---- info */
/* PoCL's platform, which is made to look like a GPU's. */
bool sim_is_ours(cl_platform_id platform);
/* Its place among the platform's devices; -1: it is another platform's. */
int sim_device_number(cl_device_id device);
/* The answer to a query, as every clGet…Info gives it. */
cl_int sim_answer(const void *answer, size_t bytes, size_t size, void *value, size_t *size_ret);
/* The context's devices, at most MAX_DEVICES; 0: this is no context. */
cl_uint sim_devices_of(cl_context context, cl_device_id *devices);

/* ---- semaphores */
typedef struct {
    sim_object object;
    cl_context context;
    cl_device_id device;     /* the one of its context or of its list */
    cl_properties properties[2 * MAX_DEVICES + 8];
    size_t property_count;
    xsem_host_timeline *timeline;
    int eventfd;
    int kept_fd;             /* closed with it; -1: none */
    cl_uint references;
    int queued;
} sim_semaphore;

enum { SIM_SEMAPHORE = 1 };

/* Ends the process where it was released. */
cl_int sim_semaphore_of(cl_semaphore_khr handle, sim_semaphore **out);
/* Its work that has failed is no longer queued. */
void sim_end_failed(const sim_semaphore *semaphore);
/* With the lock held: work of it has ended. */
void sim_semaphore_done(sim_semaphore *semaphore);
cl_semaphore_khr clCreateSemaphoreWithPropertiesKHR(cl_context, const cl_properties *, cl_int *);
cl_int clRetainSemaphoreKHR(cl_semaphore_khr);
cl_int clReleaseSemaphoreKHR(cl_semaphore_khr);
cl_int clGetSemaphoreInfoKHR(cl_semaphore_khr, cl_uint, size_t, void *, size_t *);
cl_int clGetSemaphoreHandleForTypeKHR(cl_semaphore_khr, cl_device_id, cl_uint, size_t, void *, size_t *);

/* Reads a list of devices of the context, up to its 0; NULL where one is not the context's. */
const cl_properties *sim_device_list(const cl_properties *at, cl_context context, cl_device_id *out, cl_uint *count);
/* The pointer that comes with an error: nobody may use it. */
void *sim_error_pointer(void);

/* ---- queues */
cl_int clEnqueueWaitSemaphoresKHR(cl_command_queue, cl_uint, const cl_semaphore_khr *, const cl_ulong *, cl_uint,
                                  const cl_event *, cl_event *);
cl_int clEnqueueSignalSemaphoresKHR(cl_command_queue, cl_uint, const cl_semaphore_khr *, const cl_ulong *, cl_uint,
                                    const cl_event *, cl_event *);

/* What was enqueued begins. */
void sim_flush(cl_command_queue queue);
void sim_flush_events(cl_uint count, const cl_event *events);

/* ---- memory */
/* A command uses it: is it imported, and not acquired? */
void sim_used(cl_mem mem);
cl_int clEnqueueAcquireExternalMemObjectsKHR(cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);
cl_int clEnqueueReleaseExternalMemObjectsKHR(cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);

/* ---- counters, in a file that processes share where SIMCL_COUNTERS names one */
typedef struct {
    _Atomic uint64_t waits, signals;  /* done */
    _Atomic uint64_t unacquired;      /* commands that used external memory outside an acquire and a release */
} sim_counters;

extern sim_counters *sim_counted;

#endif
