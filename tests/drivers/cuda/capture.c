/* Stream captures: the captured streams, the calls that a capture forbids, and its end or invalidation. */
#include "sim.h"

/* ---- rules for calls */
static bool forbids(const sim_capture *capture) {
    bool mine = capture->owner == &sim_self && capture->mode != CAPTURE_MODE_RELAXED;
    switch (sim_self.capture_mode) {
        case CAPTURE_MODE_GLOBAL: return mine || capture->mode == CAPTURE_MODE_GLOBAL;
        case CAPTURE_MODE_THREAD_LOCAL: return mine;
        default: return false;
    }
}

void sim_capture_invalidate(sim_capture *capture) {
    if (!capture->invalid) sim_note("# capture %llu is invalidated in %s", capture->id, sim_call);
    capture->invalid = true;
}

CUresult sim_unsafe(void) {
    CUresult code = CUDA_SUCCESS;
    for (sim_capture *each = sim.captures; each; each = each->next) {
        if (!forbids(each)) continue;
        sim_capture_invalidate(each);
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

CUresult sim_not_captured(sim_stream *stream) {
    if (!stream->capture) return CUDA_SUCCESS;
    sim_capture_invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_legacy(sim_stream *stream, bool invalidate) {
    CUresult code = CUDA_SUCCESS;
    if (!stream->is_legacy) return code;
    for (sim_stream *each = stream->context->streams; each; each = each->sibling) {
        if (!each->capture || (each->flags & STREAM_NON_BLOCKING)) continue;
        if (invalidate) sim_capture_invalidate(each->capture);
        code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return code;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    CALL("mode=%d", mode ? *mode : -1);
    REFUSE_IF(!mode || *mode < 0 || *mode > CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    int before = sim_self.capture_mode;
    sim_self.capture_mode = *mode;
    *mode = before;
    RETURN(CUDA_SUCCESS);
}

/* ---- captured streams, and the dependencies of their next node */
static void set_frontier(sim_stream *stream, sim_node *const *nodes, unsigned count) {
    sim_node **fresh = NULL;
    if (count) fresh = memcpy(malloc(count * sizeof *nodes), nodes, count * sizeof *nodes);
    free(stream->frontier);
    stream->frontier = fresh;
    stream->frontier_count = count;
}

static void extend_frontier(sim_stream *stream, sim_node *node) {
    for (unsigned i = 0; i < stream->frontier_count; i++)
        if (stream->frontier[i] == node) return;
    stream->frontier = realloc(stream->frontier, (stream->frontier_count + 1) * sizeof(sim_node *));
    stream->frontier[stream->frontier_count++] = node;
}

void sim_capture_leave(sim_stream *stream) {
    sim_capture *capture = stream->capture;
    stream->capture = NULL;
    set_frontier(stream, NULL, 0);
    if (capture->origin != stream) return;
    capture->ended = true;
    for (sim_capture **at = &sim.captures; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    sim_context *context;
    for (size_t i = 0; (context = sim_context_at(i)) != NULL; i++)
        for (sim_stream *each = context->streams; each; each = each->sibling)
            if (each->capture == capture) {
                each->capture = NULL;
                set_frontier(each, NULL, 0);
            }
}

CUresult sim_submit(sim_stream *stream, sim_work *work) {
    sim_capture *capture = stream->capture;
    if (!capture) {
        sim_batch_count(work);
        sim_enqueue(stream, work, NULL, 0);
        return CUDA_SUCCESS;
    }
    if (capture->invalid) {
        sim_work_drop(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    sim_node *node = sim_graph_add(capture->graph, work, stream->frontier, stream->frontier_count);
    set_frontier(stream, &node, 1);
    return CUDA_SUCCESS;
}

/* ---- events in a capture */
void sim_capture_record(sim_stream *stream, sim_event *event) {
    free(event->frontier);
    event->frontier = NULL;
    event->frontier_count = stream->frontier_count;
    if (event->frontier_count)
        event->frontier = memcpy(malloc(event->frontier_count * sizeof(sim_node *)), stream->frontier,
                                 event->frontier_count * sizeof(sim_node *));
    event->capture = stream->capture;
}

CUresult sim_capture_wait(sim_stream *stream, sim_event *event, bool *handled) {
    *handled = stream->capture != NULL || event->capture != NULL;
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->capture) {
        if (!stream->capture || !event->recorded) return CUDA_SUCCESS;
        sim_capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* measured */
    }
    if (event->capture->ended) return CUDA_ERROR_INVALID_VALUE; /* measured */
    if (event->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != event->capture) {
        sim_capture_invalidate(stream->capture);
        sim_capture_invalidate(event->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->is_legacy) {
        sim_capture_invalidate(event->capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = event->capture;
    for (unsigned i = 0; i < event->frontier_count; i++) extend_frontier(stream, event->frontier[i]);
    return CUDA_SUCCESS;
}

/* ---- begin */
static CUresult begin(CUstream handle, int mode) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (code) return code;
    if (mode < 0 || mode > CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    sim_capture *capture = calloc(1, sizeof *capture); /* never freed: events refer to it */
    capture->id = sim.next_id++;
    capture->mode = mode;
    capture->owner = &sim_self;
    capture->origin = stream;
    capture->graph = sim_new(SIM_GRAPH, sizeof *capture->graph);
    capture->next = sim.captures;
    sim.captures = capture;
    stream->capture = capture;
    set_frontier(stream, NULL, 0);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    CALL_AS(CALL_WORK, "stream=%p mode=%d", (void *)stream, mode);
    RETURN(begin(stream, mode));
}

/* ---- end */
static void mark(const sim_node *node, bool *seen) {
    if (seen[node->index]) return;
    seen[node->index] = true;
    for (unsigned i = 0; i < node->depends_count; i++) mark(node->depends[i], seen);
}

static bool is_joined(sim_stream *origin) {
    sim_capture *capture = origin->capture;
    bool *seen = calloc(capture->graph->count + 1, sizeof *seen), joined = true;
    for (unsigned i = 0; i < origin->frontier_count; i++) mark(origin->frontier[i], seen);
    sim_context *context;
    for (size_t i = 0; (context = sim_context_at(i)) != NULL; i++)
        for (sim_stream *each = context->streams; each; each = each->sibling)
            for (unsigned n = 0; each->capture == capture && n < each->frontier_count; n++)
                joined = joined && seen[each->frontier[n]->index];
    free(seen);
    return joined;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
    CALL_AS(CALL_WORK, "stream=%p", (void *)handle);
    sim_stream *stream;
    if (out) *out = NULL;
    TRY(sim_stream_of(handle, &stream));
    sim_capture *capture = stream->capture;
    REFUSE_IF(!capture, CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream) {
        sim_capture_invalidate(capture);
        RETURN(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    CUresult code = CUDA_SUCCESS;
    if (capture->mode != CAPTURE_MODE_RELAXED && capture->owner != &sim_self) code = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture->invalid) code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(stream)) code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    sim_capture_leave(stream); /* measured: also with WRONG_THREAD */
    if (!code && out) *out = capture->graph;
    RETURN(code);
}

/* ---- queries */
static int status_of(const sim_stream *stream) {
    if (!stream->capture) return CAPTURE_NONE;
    return stream->capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    CALL("stream=%p", (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    TRY(sim_legacy(stream, false)); /* measured: invalidates nothing */
    REFUSE_IF(!status, CUDA_ERROR_INVALID_VALUE);
    *status = status_of(stream);
    RETURN(CUDA_SUCCESS);
}

static CUresult info(CUstream handle, int *status, unsigned long long *id, CUgraph *graph, sim_node *const **depends,
                     size_t *count) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, false);
    if (code) return code;
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    bool active = *status == CAPTURE_ACTIVE;
    if (id) *id = active ? stream->capture->id : 0;
    if (graph) *graph = active ? stream->capture->graph : NULL;
    if (depends) *depends = active ? stream->frontier : NULL;
    if (count) *count = active ? stream->frontier_count : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, unsigned long long *id) {
    CALL("stream=%p", (void *)stream);
    RETURN(info(stream, status, id, NULL, NULL, NULL));
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
                                          CUgraphNode const **depends, size_t *count) {
    CALL("stream=%p", (void *)stream);
    RETURN(info(stream, status, id, graph, depends, count));
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
                                          CUgraphNode const **depends, const void **edges, size_t *count) {
    CALL("stream=%p", (void *)stream);
    if (edges) *edges = NULL;
    RETURN(info(stream, status, id, graph, depends, count));
}
