/* Waits and signals in a queue.
 *
 * A wait is two markers. When the first marker reaches its turn in the queue, a thread begins to wait. The second marker depends on
 * a user event that this thread sets. So it holds no thread of PoCL, and a queue passes its wait only when it is met. A signal is a
 * native kernel: PoCL runs it in the order of the queue, and its event completes after the signal. */
#include "sim.h"

#include <pthread.h>

typedef struct sim_op {
    struct sim_op *next;     /* in the list of queued operations */
    bool done;
    cl_command_queue queue;
    cl_uint count;
    sim_semaphore **semaphores;
    cl_ulong *values;
    cl_event met;            /* of a wait: a user event */
    cl_event passed;         /* the event of the program; NULL during the enqueue */
} sim_op;

static sim_op *ops;

static void free_op(sim_op *op) {
    free(op->semaphores);
    free(op->values);
    free(op);
}

static void begin(sim_op *op) {
    pthread_mutex_lock(&sim.lock);
    for (cl_uint i = 0; i < op->count; i++) op->semaphores[i]->queued++;
    op->next = ops;
    ops = op;
    pthread_mutex_unlock(&sim.lock);
}

/* Runs before its completion is visible. Once is enough. */
static void end(sim_op *op) {
    pthread_mutex_lock(&sim.lock);
    if (!op->done) {
        sim_op **at = &ops;
        while (*at != op) at = &(*at)->next;
        *at = op->next;
        op->done = true;
        for (cl_uint i = 0; i < op->count; i++) sim_semaphore_done(op->semaphores[i]);
    }
    pthread_mutex_unlock(&sim.lock);
}

static bool is_last(const sim_op *op) {
    for (const sim_op *each = ops; each != op; each = each->next)
        if (each->queue == op->queue) return false; /* the newest is the first */
    return true;
}

static sim_op *failed_op_of(const sim_semaphore *semaphore) {
    sim_op *found = NULL;
    pthread_mutex_lock(&sim.lock);
    for (sim_op *op = ops; op && !found; op = op->next)
        for (cl_uint i = 0; i < op->count && !found; i++) {
            cl_int status = 0;
            if (op->semaphores[i] != semaphore || !op->passed) continue;
            if (below.clGetEventInfo(op->passed, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL)) continue;
            if (status < 0) found = op;
        }
    pthread_mutex_unlock(&sim.lock);
    return found;
}

/* PoCL 3.0 makes no callback if a dependency of an event has failed. Such work is found by a later query. */
void sim_end_failed(const sim_semaphore *semaphore) {
    sim_op *op;
    while ((op = failed_op_of(semaphore)) != NULL) end(op);
}

/* ---- actions */
static void wait_all(const sim_op *op) {
    for (cl_uint i = 0; i < op->count; i++) {
        sim_payload_wait(&op->semaphores[i]->payload, op->values[i], -1);
        atomic_fetch_add(&sim_counted->waits, 1);
    }
}

static void signal_all(const sim_op *op) {
    for (cl_uint i = 0; i < op->count; i++) {
        sim_payload_signal(&op->semaphores[i]->payload, op->values[i]);
        atomic_fetch_add(&sim_counted->signals, 1);
    }
}

/* ---- flush: enqueued work begins when its queue is flushed. The specification guarantees no more, and a program without a flush
 * works on one driver and hangs on another. Each queue with unflushed work has a gate: a user event. */
typedef struct gate {
    struct gate *next;
    cl_command_queue queue;
    cl_event event;
} gate;

static gate *gates;

/* A reference for the caller; NULL: no gate is needed. */
static cl_event gate_of(cl_command_queue queue, cl_context context) {
    if (sim.unflushed) return NULL;
    cl_event made = below.clCreateUserEvent(context, NULL);
    pthread_mutex_lock(&sim.lock);
    gate *found = gates;
    while (found && found->queue != queue) found = found->next;
    if (!found) {
        found = calloc(1, sizeof *found);
        *found = (gate){gates, queue, made};
        gates = found;
        made = NULL;
    }
    cl_event event = found->event;
    below.clRetainEvent(event);
    pthread_mutex_unlock(&sim.lock);
    if (made) {
        below.clSetUserEventStatus(made, CL_COMPLETE);
        below.clReleaseEvent(made);
    }
    return event;
}

void sim_flush(cl_command_queue queue) {
    pthread_mutex_lock(&sim.lock);
    gate **at = &gates;
    while (*at && (*at)->queue != queue) at = &(*at)->next;
    gate *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&sim.lock);
    if (!found) return;
    below.clSetUserEventStatus(found->event, CL_COMPLETE);
    below.clReleaseEvent(found->event);
    free(found);
}

void sim_flush_events(cl_uint count, const cl_event *events) {
    for (cl_uint i = 0; events && i < count; i++) {
        cl_command_queue queue = NULL;
        if (events[i] && !below.clGetEventInfo(events[i], CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL) && queue) sim_flush(queue);
    }
}

/* ---- in the queue */
static void pass(sim_op *op, cl_int status) {
    end(op);
    below.clSetUserEventStatus(op->met, status);
    below.clReleaseEvent(op->met);
    below.clReleaseEvent(op->passed);
    free_op(op);
}

static void *wait_in_thread(void *argument) {
    sim_op *op = argument;
    wait_all(op);
    pass(op, CL_COMPLETE);
    return NULL;
}

/* On a thread of PoCL or of the program. */
static void at_its_place(cl_event place, cl_int status, void *argument) {
    sim_op *op = argument;
    below.clReleaseEvent(place);
    if (status < 0) { /* a dependency has failed, so this fails too */
        pass(op, status);
        return;
    }
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    if (pthread_create(&thread, &attributes, wait_in_thread, op)) sim_abort("no more threads");
    pthread_attr_destroy(&attributes);
}

static void signal_in_kernel(void *argument) {
    sim_op *op = *(sim_op **)argument;
    signal_all(op);
    pthread_mutex_lock(&sim.lock);
    if (is_last(op)) sim_be_late();
    pthread_mutex_unlock(&sim.lock);
    end(op);
}

static void after_signal(cl_event event, cl_int status, void *argument) {
    sim_op *op = argument;
    (void)event, (void)status;
    end(op); /* if a dependency has failed */
    below.clReleaseEvent(op->passed);
    free_op(op);
}

static cl_int enqueue_wait(cl_command_queue queue, cl_context context, sim_op *op, cl_uint count, const cl_event *events,
                           cl_event *out) {
    cl_event place = NULL;
    cl_int code = CL_SUCCESS;
    op->met = below.clCreateUserEvent(context, &code);
    if (code) return code;
    code = below.clEnqueueMarkerWithWaitList(queue, count, events, &place);
    if (code) {
        below.clReleaseEvent(op->met);
        return code;
    }
    begin(op);
    if (below.clEnqueueMarkerWithWaitList(queue, 1, &op->met, &op->passed)) sim_abort("PoCL takes no marker");
    if (out) below.clRetainEvent(*out = op->passed);
    below.clSetEventCallback(place, CL_COMPLETE, at_its_place, op);
    return CL_SUCCESS;
}

static cl_int enqueue_signal(cl_command_queue queue, cl_context context, sim_op *op, cl_uint count, const cl_event *events,
                             cl_event *out) {
    (void)context;
    cl_event made = NULL;
    begin(op);
    cl_int code = below.clEnqueueNativeKernel(queue, signal_in_kernel, &op, sizeof op, 0, NULL, NULL, count, events, &made);
    if (code) {
        end(op);
        return code;
    }
    op->passed = made;
    if (out) below.clRetainEvent(*out = made);
    below.clSetEventCallback(made, CL_COMPLETE, after_signal, op);
    return CL_SUCCESS;
}

/* ---- the calls */
static cl_int op_of(cl_command_queue queue, cl_uint count, const cl_semaphore_khr *handles, const cl_ulong *values,
                    cl_uint event_count, const cl_event *events, cl_context *context, sim_op **out) {
    cl_device_id device = NULL;
    if (!queue || below.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof *context, context, NULL) ||
        below.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL))
        return CL_INVALID_COMMAND_QUEUE;
    if (count == 0 || !handles) return CL_INVALID_VALUE;
    if (!events != !event_count) return CL_INVALID_EVENT_WAIT_LIST;
    sim_op *op = calloc(1, sizeof *op);
    op->queue = queue;
    op->count = count;
    op->semaphores = calloc(count, sizeof *op->semaphores);
    op->values = calloc(count, sizeof *op->values);
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < count && !code; i++) {
        code = sim_semaphore_of(handles[i], &op->semaphores[i]);
        op->values[i] = values ? values[i] : 0; /* "ignored" for a binary */
        if (!code && op->semaphores[i]->context != *context) code = CL_INVALID_CONTEXT;
        if (!code && op->semaphores[i]->device != device) code = CL_INVALID_COMMAND_QUEUE;
    }
    if (code) free_op(op);
    else *out = op;
    return code;
}

/* Measured: a signal that depends on a user event blocks its caller until the event is set. */
static void sleep_for_user_events(cl_uint count, const cl_event *events) {
    for (cl_uint i = 0; i < count; i++) {
        cl_uint type = 0;
        if (below.clGetEventInfo(events[i], CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL) || type != CL_COMMAND_USER) continue;
        sim_note("# held by a user event");
        below.clWaitForEvents(1, &events[i]);
    }
}

static cl_int enqueue(bool is_signal, cl_command_queue queue, cl_uint count, const cl_semaphore_khr *handles, const cl_ulong *values,
                      cl_uint event_count, const cl_event *events, cl_event *out) {
    sim_op *op = NULL;
    cl_context context = NULL;
    cl_int code = op_of(queue, count, handles, values, event_count, events, &context, &op);
    if (code) return code;
    if (is_signal) sleep_for_user_events(event_count, events);
    cl_event *all = calloc(event_count + 1, sizeof *all);
    if (event_count) memcpy(all, events, event_count * sizeof *all);
    cl_event gate = all[event_count] = gate_of(queue, context);
    cl_uint all_count = event_count + (gate != NULL);
    cl_event passed = NULL;
    code = (is_signal ? enqueue_signal : enqueue_wait)(queue, context, op, all_count, all_count ? all : NULL, &passed);
    free(all);
    if (gate) below.clReleaseEvent(gate);
    if (code) {
        free_op(op);
        return code;
    }
    if (out) *out = passed;
    else below.clReleaseEvent(passed);
    return CL_SUCCESS;
}

cl_int clEnqueueWaitSemaphoresKHR(cl_command_queue queue, cl_uint count, const cl_semaphore_khr *semaphores, const cl_ulong *values,
                                  cl_uint event_count, const cl_event *events, cl_event *event) {
    CALL("queue=%p count=%u semaphore=%p events=%u", (void *)queue, count, count && semaphores ? (void *)*semaphores : NULL, event_count);
    RETURN(enqueue(false, queue, count, semaphores, values, event_count, events, event));
}

cl_int clEnqueueSignalSemaphoresKHR(cl_command_queue queue, cl_uint count, const cl_semaphore_khr *semaphores, const cl_ulong *values,
                                    cl_uint event_count, const cl_event *events, cl_event *event) {
    CALL("queue=%p count=%u semaphore=%p events=%u", (void *)queue, count, count && semaphores ? (void *)*semaphores : NULL, event_count);
    RETURN(enqueue(true, queue, count, semaphores, values, event_count, events, event));
}
