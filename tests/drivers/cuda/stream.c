/* Streams as queues: order, the rules of the legacy stream, the limited number of places, the worker threads. */
#include "sim.h"

/* ---- hardware queues */
/* Each stream that waits for a semaphore or a word holds one of the context's hardware queues. With as many waiting streams as
 * queues, all work that is submitted later stops, on new streams too. Records on idle streams, and waits for events of other
 * streams, do not stop and hold nothing (measured for semaphores). */
static bool stopped(sim_stream *stream, uint64_t number) {
    int held = 0;
    for (sim_stream *each = stream->context->streams; each; each = each->sibling) {
        if (each == stream || !each->waits) continue;
        for (sim_op *op = each->head; op && op->number < number; op = op->next)
            if (op->work && op->work->waits) {
                held++;
                break;
            }
    }
    return held >= sim.connections;
}

/* ---- the worker */
static void take_away(sim_stream *stream) {
    for (sim_stream **at = &stream->context->streams; *at; at = &(*at)->sibling)
        if (*at == stream) {
            *at = stream->sibling;
            return;
        }
}

static void *work(void *argument) {
    sim_stream *stream = argument;
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        while (!stream->head && stream->object.alive) pthread_cond_wait(&stream->more, &sim.lock);
        sim_op *op = stream->head;
        if (!op) break;
        for (unsigned i = 0; i < op->waits_count; i++)
            while (!sim_met(op->waits[i])) pthread_cond_wait(&sim.changed, &sim.lock);
        if (op->work) {
            bool waits = op->work->waits;
            while (stopped(stream, op->number)) pthread_cond_wait(&sim.changed, &sim.lock);
            pthread_mutex_unlock(&sim.lock);
            while (!op->work->run(op->work, true)) {
            }
            pthread_mutex_lock(&sim.lock);
            if ((op->work->node == NODE_SIGNAL || (op->work->node == NODE_MEMOPS && !waits)) && !op->next) sim_be_late();
            sim_work_drop(op->work);
            stream->waits -= waits;
        }
        stream->head = op->next;
        if (!stream->head) stream->tail = NULL;
        stream->completed++;
        stream->places -= op->takes_place;
        free(op);
        pthread_cond_broadcast(&sim.changed);
    }
    stream->has_worker = false;
    if (stream->destroyed) take_away(stream);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

sim_stream *sim_stream_new(sim_context *context, unsigned flags, int priority) {
    sim_stream *stream = sim_new(SIM_STREAM, sizeof *stream);
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = sim.next_id++;
    pthread_cond_init(&stream->more, NULL);
    stream->sibling = context->streams;
    context->streams = stream;
    return stream;
}

CUresult sim_stream_of(CUstream handle, sim_stream **out) {
    sim_context *context;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUresult code = sim_current(&context);
        if (code) return code;
        if (handle != CU_STREAM_PER_THREAD) {
            *out = context->legacy;
            return CUDA_SUCCESS;
        }
        for (int i = 0; i < sim_self.per_thread_count; i++)
            if (sim_self.per_thread[i]->context == context && sim_self.per_thread[i]->object.alive) {
                *out = sim_self.per_thread[i];
                return CUDA_SUCCESS;
            }
        if (sim_self.per_thread_count == MAX_STACK) return CUDA_ERROR_OUT_OF_MEMORY;
        *out = sim_self.per_thread[sim_self.per_thread_count++] = sim_stream_new(context, 0, 0);
        return CUDA_SUCCESS;
    }
    sim_stream *stream = sim_known(handle, SIM_STREAM);
    if (!stream) sim_abort("this is not a stream");
    if (stream->destroyed) sim_abort("this stream was destroyed");
    if (!stream->object.alive) return CUDA_ERROR_INVALID_CONTEXT;
    *out = stream;
    return CUDA_SUCCESS;
}

/* ---- order */
bool sim_stream_idle(sim_stream *stream) { return stream->completed == stream->submitted; }

static sim_point end_of(sim_stream *stream) { return (sim_point){stream, stream->submitted}; }

/* The dependencies of newly appended work outside its own queue: calls `take` for each. */
static unsigned implied(sim_stream *stream, sim_point *out) {
    unsigned count = 0;
    if (stream->flags & STREAM_NON_BLOCKING) return 0;
    if (!stream->is_legacy) {
        sim_stream *legacy = stream->context->legacy;
        if (!sim_stream_idle(legacy)) {
            if (out) out[count] = end_of(legacy);
            count++;
        }
        return count;
    }
    for (sim_stream *each = stream->context->streams; each; each = each->sibling) {
        if (each == stream || (each->flags & STREAM_NON_BLOCKING) || sim_stream_idle(each)) continue;
        if (out) out[count] = end_of(each);
        count++;
    }
    return count;
}

sim_point sim_enqueue(sim_stream *stream, sim_work *work_, const sim_point *also, unsigned also_count) {
    bool takes_place = work_ && work_->takes_place; /* waits for events take no place (measured: 5,000 return) */
    while (takes_place && stream->places >= MAX_PLACES) pthread_cond_wait(&sim.changed, &sim.lock);
    unsigned count = implied(stream, NULL);
    sim_op *op = calloc(1, sizeof *op + (count + also_count) * sizeof(sim_point));
    op->work = work_;
    op->number = ++sim.submitted;
    op->takes_place = takes_place;
    op->waits_count = count + also_count;
    implied(stream, op->waits);
    if (also_count) memcpy(op->waits + count, also, also_count * sizeof *also);
    if (stream->tail) stream->tail->next = op;
    else stream->head = op;
    stream->tail = op;
    stream->submitted++;
    stream->places += takes_place;
    stream->waits += work_ && work_->waits;
    if (!stream->has_worker) sim_start_thread(work, stream);
    stream->has_worker = true;
    pthread_cond_signal(&stream->more);
    return end_of(stream);
}

/* The current position of the stream. It takes no place (measured: 5,000 records behind an unmet wait return). */
sim_point sim_record(sim_stream *stream) {
    if (implied(stream, NULL)) return sim_enqueue(stream, NULL, NULL, 0);
    return end_of(stream);
}

void sim_sleep_until(sim_point point) {
    while (!sim_met(point)) pthread_cond_wait(&sim.changed, &sim.lock);
}

void sim_drain_context(sim_context *context) {
    for (sim_stream *each = context->streams; each;) {
        if (sim_stream_idle(each)) {
            each = each->sibling;
            continue;
        }
        sim_sleep_until(end_of(each));
        each = context->streams; /* the list may have changed */
    }
}

/* Around a call that blocks behind queued work: most calls of other threads wait until it returns (measured). */
void sim_hold_others(void) {
    while (sim.held_by_others) pthread_cond_wait(&sim.changed, &sim.lock);
    sim.held_by_others = true;
    sim.holder = pthread_self();
}

void sim_let_others(void) {
    sim.held_by_others = false;
    pthread_cond_broadcast(&sim.changed);
}

/* Waits for all work queued on the device, without work that is appended later. */
void sim_drain_device(int device) {
    unsigned count = 0, room = 64;
    sim_point *ends = malloc(room * sizeof *ends);
    for (size_t slot = 0;; slot++) {
        sim_context *context = sim_context_at(slot);
        if (!context) break;
        if (!context->object.alive || context->device != device) continue;
        for (sim_stream *each = context->streams; each; each = each->sibling) {
            if (sim_stream_idle(each)) continue;
            if (count == room) ends = realloc(ends, (room *= 2) * sizeof *ends);
            ends[count++] = end_of(each);
        }
    }
    for (unsigned i = 0; i < count; i++) sim_sleep_until(ends[i]);
    free(ends);
}
