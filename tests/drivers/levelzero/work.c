/* Actions of operations, and the objects that they hold while they are queued. */
#include "work.h"

sim_op *sim_op_new(sim_what what) {
    sim_op *op = calloc(1, sizeof *op);
    op->what = what;
    return op;
}

static void *duplicate(const void *bytes, size_t size) { return bytes ? memcpy(malloc(size ? size : 1), bytes, size) : NULL; }

/* The operations of a regular list run once for each execution of the list. */
sim_op *sim_op_copy(const sim_op *op) {
    sim_op *copy = duplicate(op, sizeof *op);
    copy->next = NULL;
    copy->waits = duplicate(op->waits, op->wait_count * sizeof *op->waits);
    if (op->what == DO_WAIT || op->what == DO_SIGNAL) {
        copy->batch.semaphores = duplicate(op->batch.semaphores, op->batch.count * sizeof *op->batch.semaphores);
        copy->batch.values = duplicate(op->batch.values, op->batch.count * sizeof *op->batch.values);
    }
    if (op->what == DO_FILL) copy->fill.pattern = duplicate(op->fill.pattern, op->fill.pattern_size);
    return copy;
}

void sim_op_free(sim_op *op) {
    if (op->what == DO_FILL) free(op->fill.pattern);
    if (op->what == DO_WAIT || op->what == DO_SIGNAL) {
        free(op->batch.semaphores);
        free(op->batch.values);
        free(op->batch.entries);
    }
    free(op->waits);
    free(op);
}

static void count_side(sim_side *side, int by) {
    if (side->allocation) side->allocation->queued += by;
    if (side->image) side->image->queued += by;
}

void sim_op_count(sim_op *op, int by) {
    if (op->signal) op->signal->queued += by;
    for (uint32_t i = 0; i < op->wait_count; i++) op->waits[i]->queued += by;
    switch (op->what) {
        case DO_WAIT:
        case DO_SIGNAL:
            for (uint32_t i = 0; i < op->batch.count; i++) op->batch.semaphores[i]->queued += by;
            break;
        case DO_COPY:
            count_side(&op->copy.to, by);
            count_side(&op->copy.from, by);
            break;
        case DO_FILL: count_side(&op->fill.to, by); break;
        case DO_EVENT: op->set.event->queued += by; break;
        case DO_FENCE: op->fence->queued += by; break;
        case DO_NOTHING: break;
    }
}

/* ---- on a worker, without the lock */
static void run_copy(const sim_op *op) {
    const sim_side *to = &op->copy.to, *from = &op->copy.from;
    for (size_t z = 0; z < op->copy.depth; z++)
        for (size_t y = 0; y < op->copy.height; y++)
            memmove(to->data + z * to->slice + y * to->row, from->data + z * from->slice + y * from->row, op->copy.width);
}

static void run_fill(const sim_op *op) {
    for (size_t i = 0; i < op->fill.size; i++) op->fill.to.data[i] = (char)op->fill.pattern[i % op->fill.pattern_size];
}

static void run_event(const sim_op *op) {
    pthread_mutex_lock(&sim.lock);
    op->set.event->signalled = op->set.signalled;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

void sim_op_run(sim_op *op) {
    switch (op->what) {
        case DO_WAIT:
            if (op->batch.entries) sim_controller_wait(op->batch.entries, op->batch.count);
            else for (uint32_t i = 0; i < op->batch.count; i++) sim_semaphore_wait(op->batch.semaphores[i], op->batch.values[i]);
            break;
        case DO_SIGNAL:
            if (op->batch.entries) sim_controller_pass(op->batch.entries, op->batch.count);
            else for (uint32_t i = 0; i < op->batch.count; i++) sim_semaphore_signal(op->batch.semaphores[i], op->batch.values[i]);
            break;
        case DO_COPY: run_copy(op); break;
        case DO_FILL: run_fill(op); break;
        case DO_EVENT: run_event(op); break;
        case DO_FENCE:
        case DO_NOTHING: break;
    }
}
