/* Graphs: nodes, instances, launches. A launch is one operation of its stream. */
#include "sim.h"

/* ---- nodes */
sim_node *sim_graph_add(sim_graph *graph, sim_work *work, sim_node *const *depends, unsigned count) {
    sim_node *node = sim_new(SIM_NODE, sizeof *node);
    node->graph = graph;
    node->index = graph->count;
    node->work = work;
    node->depends_count = count;
    if (count) node->depends = memcpy(malloc(count * sizeof *depends), depends, count * sizeof *depends);
    graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
    graph->nodes[graph->count++] = node;
    return node;
}

static sim_graph *graph_of(CUgraph handle) {
    sim_graph *graph = sim_known(handle, SIM_GRAPH);
    return graph && graph->object.alive ? graph : NULL;
}

static sim_exec *exec_of(CUgraphExec handle) {
    sim_exec *exec = sim_known(handle, SIM_EXEC);
    return exec && exec->object.alive ? exec : NULL;
}

static sim_node *node_of(CUgraphNode handle, int type) {
    sim_node *node = sim_known(handle, SIM_NODE);
    return node && (!type || node->work->node == type) ? node : NULL;
}

EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned flags) {
    CALL("flags=%u", flags);
    REFUSE_IF(!out || flags, CUDA_ERROR_INVALID_VALUE);
    *out = sim_new(SIM_GRAPH, sizeof(sim_graph));
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphDestroy(CUgraph handle) {
    CALL("graph=%p", (void *)handle);
    sim_graph *graph = graph_of(handle);
    REFUSE_IF(!graph, CUDA_ERROR_INVALID_VALUE);
    graph->object.alive = false;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    CALL("graph=%p", (void *)handle);
    sim_graph *graph = graph_of(handle);
    REFUSE_IF(!graph || !count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; nodes && i < *count; i++) nodes[i] = i < graph->count ? graph->nodes[i] : NULL;
    if (!nodes || *count > graph->count) *count = graph->count;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, int *type) {
    CALL("node=%p", (void *)handle);
    sim_node *node = node_of(handle, 0);
    REFUSE_IF(!node || !type, CUDA_ERROR_INVALID_VALUE);
    *type = node->work->node;
    RETURN(CUDA_SUCCESS);
}

/* ---- semaphore nodes */
static CUresult add(bool is_signal, CUgraphNode *out, CUgraph handle, const CUgraphNode *depends, size_t depends_count,
                    const CUexternalSemaphore *semaphores, const void *params, unsigned count) {
    sim_graph *graph = graph_of(handle);
    if (!out || !graph || (depends_count && !depends)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < depends_count; i++) {
        sim_node *node = node_of(depends[i], 0);
        if (!node || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    }
    sim_work *work;
    CUresult code = sim_batch_work(&work, is_signal, semaphores, params, count);
    if (!code) *out = sim_graph_add(graph, work, depends, (unsigned)depends_count);
    return code;
}

static CUresult replace(sim_work **at, bool is_signal, const CUexternalSemaphore *semaphores, const void *params,
                        unsigned count) {
    sim_work *work;
    CUresult code = sim_batch_work(&work, is_signal, semaphores, params, count);
    if (code) return code;
    sim_work_drop(*at);
    *at = work;
    return CUDA_SUCCESS;
}

static sim_work **instance_of(CUgraphExec handle, CUgraphNode node) {
    sim_exec *exec = exec_of(handle);
    for (unsigned i = 0; exec && i < exec->count; i++)
        if (exec->origin[i] == node) return &exec->nodes[i];
    return NULL;
}

#define SEMAPHORE_NODE(Name, TYPE, is_signal, node_type)                                                                   \
    EXPORT CUresult cuGraphAddExternalSemaphores##Name##Node(CUgraphNode *out, CUgraph graph, const CUgraphNode *depends,  \
                                                             size_t count, const CUDA_EXT_SEM_##TYPE##_NODE_PARAMS *params) { \
        CALL("graph=%p params=%s", (void *)graph, sim_hex(params, sizeof *params));                                        \
        REFUSE_IF(!params, CUDA_ERROR_INVALID_VALUE);                                                                      \
        RETURN(add(is_signal, out, graph, depends, count, params->semaphores, params->params, params->count));             \
    }                                                                                                                      \
    EXPORT CUresult cuGraphExternalSemaphores##Name##NodeGetParams(CUgraphNode handle,                                     \
                                                                   CUDA_EXT_SEM_##TYPE##_NODE_PARAMS *params) {            \
        CALL("node=%p", (void *)handle);                                                                                   \
        sim_node *node = node_of(handle, node_type);                                                                       \
        REFUSE_IF(!node || !params, CUDA_ERROR_INVALID_VALUE);                                                             \
        params->semaphores = node->work->batch.semaphores;                                                                 \
        params->params = (const void *)node->work->batch.params;                                                           \
        params->count = node->work->batch.count;                                                                           \
        RETURN(CUDA_SUCCESS);                                                                                              \
    }                                                                                                                      \
    EXPORT CUresult cuGraphExternalSemaphores##Name##NodeSetParams(CUgraphNode handle,                                     \
                                                                   const CUDA_EXT_SEM_##TYPE##_NODE_PARAMS *params) {      \
        CALL("node=%p params=%s", (void *)handle, sim_hex(params, sizeof *params));                                        \
        sim_node *node = node_of(handle, node_type);                                                                       \
        REFUSE_IF(!node || !params, CUDA_ERROR_INVALID_VALUE);                                                             \
        RETURN(replace(&node->work, is_signal, params->semaphores, params->params, params->count));                        \
    }                                                                                                                      \
    EXPORT CUresult cuGraphExecExternalSemaphores##Name##NodeSetParams(CUgraphExec exec, CUgraphNode handle,               \
                                                                       const CUDA_EXT_SEM_##TYPE##_NODE_PARAMS *params) {  \
        CALL("exec=%p node=%p params=%s", (void *)exec, (void *)handle, sim_hex(params, sizeof *params));                  \
        sim_work **instance = instance_of(exec, handle);                                                                   \
        REFUSE_IF(!instance || !params || (*instance)->node != node_type, CUDA_ERROR_INVALID_VALUE);                       \
        RETURN(replace(instance, is_signal, params->semaphores, params->params, params->count));                           \
    }
SEMAPHORE_NODE(Signal, SIGNAL, true, NODE_SIGNAL)
SEMAPHORE_NODE(Wait, WAIT, false, NODE_WAIT)

/* ---- instances */
static CUresult instantiate(CUgraphExec *out, CUgraph handle) {
    sim_context *context;
    CUresult code = sim_current(&context);
    if (!code) code = sim_unsafe();
    if (code) return code;
    sim_graph *graph = graph_of(handle);
    if (!graph || !out) return CUDA_ERROR_INVALID_VALUE;
    unsigned count = graph->count;
    sim_exec *exec = sim_new(SIM_EXEC, sizeof *exec);
    exec->count = count;
    exec->nodes = calloc(count + 1, sizeof *exec->nodes);
    exec->origin = calloc(count + 1, sizeof *exec->origin);
    exec->depends = calloc((size_t)count * count + 1, sizeof *exec->depends);
    for (unsigned i = 0; i < count; i++) {
        sim_node *node = graph->nodes[i];
        exec->nodes[i] = sim_work_copy(node->work);
        exec->origin[i] = node;
        for (unsigned j = 0; j < node->depends_count; j++) exec->depends[(size_t)i * count + node->depends[j]->index] = true;
    }
    *out = exec;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    CALL_AS(CALL_WORK, "graph=%p", (void *)graph);
    if (error) *error = NULL;
    if (log && size) *log = 0;
    RETURN(instantiate(out, graph));
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    CALL_AS(CALL_WORK, "graph=%p", (void *)graph);
    if (error) *error = NULL;
    if (log && size) *log = 0;
    RETURN(instantiate(out, graph));
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    CALL_AS(CALL_WORK, "graph=%p flags=%llu", (void *)graph, flags);
    RETURN(instantiate(out, graph));
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    CALL_AS(CALL_WORK, "graph=%p params=%s", (void *)graph, sim_hex(params, sizeof *params));
    REFUSE_IF(!params, CUDA_ERROR_INVALID_VALUE);
    CUresult code = instantiate(out, graph);
    params->result = code ? 1 : 0;
    params->error_node = NULL;
    RETURN(code);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
    CALL_AS(CALL_WORK, "exec=%p", (void *)handle);
    TRY(sim_unsafe());
    sim_exec *exec = exec_of(handle);
    REFUSE_IF(!exec, CUDA_ERROR_INVALID_VALUE);
    exec->object.alive = false;
    for (unsigned i = 0; i < exec->count; i++) sim_work_drop(exec->nodes[i]);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
    CALL_AS(CALL_WORK, "exec=%p stream=%p", (void *)handle, (void *)stream_handle);
    sim_stream *stream;
    TRY(sim_stream_of(stream_handle, &stream));
    RETURN(exec_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* ---- launches */
/* Nodes without pending dependencies may run. A wait holds only its successors. */
static bool run_graph(sim_work *work, bool for_ever) {
    (void)for_ever;
    unsigned count = work->graph.count, left = count;
    bool *done = calloc(count + 1, sizeof *done);
    while (left) {
        bool progress = false;
        for (unsigned i = 0; i < count; i++) {
            bool ready = !done[i];
            for (unsigned j = 0; ready && j < count; j++) ready = !work->graph.depends[(size_t)i * count + j] || done[j];
            if (!ready || !work->graph.nodes[i]->run(work->graph.nodes[i], false)) continue;
            done[i] = progress = true;
            left--;
        }
        struct timespec pause = {0, 200000};
        if (!progress) nanosleep(&pause, NULL);
    }
    free(done);
    return true;
}

static void drop_graph(sim_work *work) {
    for (unsigned i = 0; i < work->graph.count; i++) sim_work_drop(work->graph.nodes[i]);
    free(work->graph.nodes);
    free(work->graph.depends);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    CALL_AS(CALL_WORK, "exec=%p stream=%p", (void *)handle, (void *)stream_handle);
    sim_stream *stream;
    TRY(sim_stream_of(stream_handle, &stream));
    TRY(sim_legacy(stream, true));
    sim_exec *exec = exec_of(handle);
    REFUSE_IF(!exec, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(stream->capture && stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REFUSE_IF(stream->capture, CUDA_ERROR_NOT_SUPPORTED); /* the stand-in lacks child graphs */
    sim_work *work = sim_work_new(0, run_graph);
    work->takes_place = true;
    work->drop = drop_graph;
    size_t matrix = (size_t)exec->count * exec->count + 1;
    work->graph.count = exec->count;
    work->graph.nodes = calloc(exec->count + 1, sizeof *work->graph.nodes);
    work->graph.depends = memcpy(malloc(matrix), exec->depends, matrix);
    for (unsigned i = 0; i < exec->count; i++) {
        work->graph.nodes[i] = sim_work_copy(exec->nodes[i]);
        sim_batch_count(work->graph.nodes[i]);
        work->waits = work->waits || work->graph.nodes[i]->waits;
    }
    exec->last = sim_enqueue(stream, work, &exec->last, 1); /* launches of one instance follow each other */
    RETURN(CUDA_SUCCESS);
}
