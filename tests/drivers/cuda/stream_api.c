/* Functions for streams and events. */
#include "sim.h"

static CUresult create(CUstream *out, unsigned flags, int priority) {
    sim_context *context;
    CUresult code = sim_current(&context);
    if (code) return code;
    if (!out || (flags & ~(unsigned)STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
    *out = sim_stream_new(context, flags, priority);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    CALL("flags=%u", flags);
    RETURN(create(out, flags, 0));
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    CALL("flags=%u priority=%d", flags, priority);
    RETURN(create(out, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority));
}

/* Returns immediately (measured). Queued work continues. */
EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
    CALL("stream=%p", (void *)handle);
    REFUSE_IF((uintptr_t)handle <= 2, CUDA_ERROR_INVALID_VALUE);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    if (stream->capture) {
        sim_capture_invalidate(stream->capture);
        sim_capture_leave(stream);
    }
    stream->destroyed = true;
    stream->object.alive = false;
    if (stream->has_worker) {
        pthread_cond_broadcast(&stream->more); /* the worker removes it from the list of the context */
    } else {
        for (sim_stream **at = &stream->context->streams; *at; at = &(*at)->sibling)
            if (*at == stream) {
                *at = stream->sibling;
                break;
            }
    }
    RETURN(CUDA_SUCCESS);
}

/* The legacy stream is behind all blocking ones. */
static sim_point end_with_implied(sim_stream *stream) {
    return stream->is_legacy ? sim_record(stream) : (sim_point){stream, stream->submitted};
}

EXPORT CUresult cuStreamQuery(CUstream handle) {
    CALL_AS(CALL_WORK | CALL_FORKED, "stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, true));
    TRY(sim_not_captured(stream));
    TRY(sim_unsafe());
    if (sim.forked) RETURN(sim_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY); /* measured */
    RETURN(sim_met(end_with_implied(stream)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    CALL_AS(CALL_WORK, "stream=%p", (void *)handle);
    REFUSE_IF(sim_self.in_host_function, CUDA_ERROR_NOT_PERMITTED);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, true));
    TRY(sim_not_captured(stream));
    TRY(sim_unsafe());
    sim_sleep_until(end_with_implied(stream));
    CUresult code = sim.async_error;
    sim.async_error = CUDA_SUCCESS;
    RETURN(code);
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_not_captured(stream)); /* measured */
    REFUSE_IF(!flags, CUDA_ERROR_INVALID_VALUE);
    *flags = stream->flags;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    REFUSE_IF(!priority, CUDA_ERROR_INVALID_VALUE);
    *priority = stream->priority;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    REFUSE_IF(!id, CUDA_ERROR_INVALID_VALUE);
    *id = stream->id;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, true)); /* measured */
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = stream->context;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *out, void **green) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, true));
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    *out = stream->context;
    if (green) *green = NULL;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
    *device = stream->context->device;
    RETURN(CUDA_SUCCESS);
}

/* ---- events */
static sim_event *event_of(CUevent handle) {
    if (!handle) return NULL;
    sim_event *event = sim_known(handle, SIM_EVENT);
    if (!event) sim_abort("this is not an event");
    return event;
}

/* NULL: INVALID_HANDLE. Event or context destroyed: CONTEXT_IS_DESTROYED. Both measured. */
#define EVENT(event, handle)                                                       \
    sim_event *event = event_of(handle);                                           \
    REFUSE_IF(!event, CUDA_ERROR_INVALID_HANDLE);                                  \
    REFUSE_IF(!event->object.alive || !event->context->object.alive, CUDA_ERROR_CONTEXT_IS_DESTROYED)

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags) {
    CALL("flags=%u", flags);
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!out || (flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    sim_event *event = sim_new(SIM_EVENT, sizeof *event);
    event->context = context;
    event->flags = flags;
    *out = event;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
    CALL("event=%p", (void *)handle);
    EVENT(event, handle);
    event->object.alive = false;
    RETURN(CUDA_SUCCESS);
}

static bool stamp(sim_work *work, bool for_ever) {
    (void)for_ever;
    pthread_mutex_lock(&sim.lock);
    if (work->stamp.event->generation == work->stamp.generation) work->stamp.event->time_ns = xsem_host_now_ns();
    pthread_mutex_unlock(&sim.lock);
    return true;
}

static CUresult record(sim_event *event, CUstream handle) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (code) return code;
    if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->generation++;
    event->recorded = true;
    event->capture = NULL;
    if (stream->capture) {
        sim_capture_record(stream, event);
        return CUDA_SUCCESS;
    }
    if (event->flags & EVENT_DISABLE_TIMING) {
        event->point = sim_record(stream);
    } else {
        sim_work *work = sim_work_new(0, stamp);
        work->stamp.event = event;
        work->stamp.generation = event->generation;
        event->point = sim_enqueue(stream, work, NULL, 0);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream) {
    CALL("event=%p stream=%p", (void *)handle, (void *)stream);
    EVENT(event, handle);
    RETURN(record(event, stream));
}

EXPORT CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
    CALL("event=%p stream=%p flags=%u", (void *)handle, (void *)stream, flags);
    EVENT(event, handle);
    REFUSE_IF(flags > 1, CUDA_ERROR_INVALID_VALUE);
    RETURN(record(event, stream));
}

/* During its capture: 907, and the capture is invalidated. After it: INVALID_VALUE. Both measured. */
static CUresult not_captured_event(sim_event *event) {
    if (!event->capture) return CUDA_SUCCESS;
    if (event->capture->ended) return CUDA_ERROR_INVALID_VALUE;
    sim_capture_invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

EXPORT CUresult cuEventQuery(CUevent handle) {
    CALL_AS(CALL_WORK, "event=%p", (void *)handle);
    EVENT(event, handle);
    TRY(not_captured_event(event));
    TRY(sim_unsafe());
    RETURN(!event->recorded || sim_met(event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

EXPORT CUresult cuEventSynchronize(CUevent handle) {
    CALL_AS(CALL_WORK, "event=%p", (void *)handle);
    EVENT(event, handle);
    TRY(not_captured_event(event));
    TRY(sim_unsafe());
    if (event->recorded) sim_sleep_until(event->point);
    RETURN(CUDA_SUCCESS);
}

static CUresult elapsed(float *milliseconds, CUevent from_handle, CUevent to_handle) {
    sim_event *from = event_of(from_handle), *to = event_of(to_handle);
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    if (!from || !to || !from->recorded || !to->recorded || ((from->flags | to->flags) & EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_met(from->point) || !sim_met(to->point)) return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(to->time_ns - from->time_ns) / 1e6f;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    CALL("from=%p to=%p", (void *)from, (void *)to);
    RETURN(elapsed(milliseconds, from, to));
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
    CALL("from=%p to=%p", (void *)from, (void *)to);
    RETURN(elapsed(milliseconds, from, to));
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
    CALL("stream=%p event=%p flags=%u", (void *)stream_handle, (void *)handle, flags);
    EVENT(event, handle);
    REFUSE_IF(flags > 1, CUDA_ERROR_INVALID_VALUE);
    sim_stream *stream;
    TRY(sim_stream_of(stream_handle, &stream));
    TRY(sim_legacy(stream, true));
    bool handled;
    TRY(sim_capture_wait(stream, event, &handled));
    if (!handled && event->recorded && !sim_met(event->point)) sim_enqueue(stream, NULL, &event->point, 1);
    RETURN(CUDA_SUCCESS);
}
