/* Operations, and the lanes in which they are queued. */
#ifndef SIMZE_WORK_H
#define SIMZE_WORK_H

#include "sim.h"

typedef enum { DO_NOTHING, DO_WAIT, DO_SIGNAL, DO_COPY, DO_FILL, DO_EVENT, DO_FENCE } sim_what;

typedef struct {
    sim_allocation *allocation;
    sim_image *image;
    char *data;
    size_t row, slice;               /* bytes from one row and one slice to the next */
} sim_side;

typedef struct sim_op {
    struct sim_op *next, *next_of_engine;
    struct sim_lane *lane;
    sim_what what;
    bool done;
    bool holds_back;                 /* later work of its lane begins after it */
    bool comes_after_all;            /* it begins after all earlier work of its lane */
    sim_event *signal;
    uint32_t wait_count;
    sim_event **waits;
    union {
        struct { uint32_t count; sim_semaphore **semaphores; uint64_t *values; struct sim_entry **entries; } batch;
        struct { sim_side to, from; size_t width, height, depth; } copy;
        struct { sim_side to; size_t size, pattern_size; unsigned char *pattern; } fill;
        struct { sim_event *event; bool signalled; } set;
        struct sim_fence *fence;
    };
} sim_op;

sim_op *sim_op_new(sim_what what);
sim_op *sim_op_copy(const sim_op *op);
void sim_op_free(sim_op *op);
/* Its objects cannot be destroyed while it is queued. */
void sim_op_count(sim_op *op, int by);
void sim_op_run(sim_op *op);

/* ---- the controller (SIMZE_CONTROLLER) */
typedef struct sim_entry sim_entry;

/* Waits until the thread of the controller is not blocked. Each append of a wait or signal begins with this call. */
void sim_controller_lock(void);
sim_entry *sim_controller_add(sim_semaphore *semaphore, uint64_t value, bool is_signal);
/* On a worker: sleeps until the waits are met. */
void sim_controller_wait(sim_entry **entries, uint32_t count);
/* On a worker: the list has passed the signals. */
void sim_controller_pass(sim_entry **entries, uint32_t count);
void sim_controller_forget(void);
/* A forked child has no work of its parent. */
void sim_engines_forget(void);

/* A queue of work: of a command queue, or of an immediate command list. */
typedef struct sim_lane {
    sim_object object;               /* of a queue; the lane of an immediate list has no handle */
    sim_context *context;
    sim_device *device;
    bool in_order, synchronous, has_worker, ending;
    sim_op *head, *tail;
    uint64_t pending;
    uint32_t ordinal, index;
    pthread_cond_t more;
} sim_lane;

typedef struct sim_list {
    sim_object object;
    sim_context *context;
    sim_device *device;
    sim_lane *lane;                  /* of an immediate list */
    bool closed, in_order;
    bool entered;                    /* an append is in progress */
    uint32_t ordinal;
    sim_op **recorded;               /* of a regular list */
    uint32_t recorded_count;
    sim_lane *ran_on;
} sim_list;

/* Takes ownership of `op` with every result. In a synchronous lane it sleeps until `op` is done. */
ze_result_t sim_append(sim_list *list, sim_op *op, sim_event *signal, uint32_t wait_count, sim_event *const *waits);
/* Begins an append. The append lasts SIMZE_APPEND_US, without the lock; a second append meanwhile is counted as an overlap. */
ze_result_t sim_list_open(ze_command_list_handle_t handle, sim_list **out);

#endif
