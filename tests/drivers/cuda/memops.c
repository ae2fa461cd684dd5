/* Memory of the program that is registered, and operations of streams on words: waits and writes of 32 or 64 bits, alone or in
 * a batch. Registered memory keeps its address. */
#include "sim.h"

#include <inttypes.h>

/* ---- registered memory */
/* Whether all pages of the range are mapped and permit writes. */
static bool is_writable(uintptr_t address, size_t size) {
#ifdef _WIN32
    (void)address, (void)size;
    return true;
#else
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600], mode[5];
    uintptr_t begin, end, at = address;
    while (maps && at < address + size && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, mode) != 3 || end <= at) continue;
        if (begin > at || mode[1] != 'w') break;
        at = end;
    }
    if (maps) fclose(maps);
    return at >= address + size;
#endif
}

EXPORT CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
    CALL_AS(CALL_WORK, "p=%p size=%zu flags=%u", address, size, flags);
    sim_context *context;
    TRY(sim_current(&context));
    TRY(sim_unsafe());
    REFUSE_IF(!address || !size || (flags & ~15u), CUDA_ERROR_INVALID_VALUE);
    /* Measured: the same range twice; another mapping of the same pages is permitted. */
    REFUSE_IF(sim_allocated_in((uintptr_t)address, size), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    /* Measured. */
    REFUSE_IF(!(flags & REGISTER_READ_ONLY) && !is_writable((uintptr_t)address, size), CUDA_ERROR_INVALID_VALUE);
    sim_allocation *made = sim_allocation_add(context, MEMORY_HOST, address, 0, 0, size);
    made->registered = true;
    made->read_only = flags & REGISTER_READ_ONLY;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostUnregister(void *address) {
    CALL_AS(CALL_WORK, "p=%p", address);
    TRY(sim_unsafe());
    sim_allocation *found = sim_allocation_of((uintptr_t)address);
    REFUSE_IF(!found || !found->registered || found->address != (uintptr_t)address, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    sim_hold_others();
    sim_drain_device(found->device); /* measured: blocks behind any unmet wait, also for an idle page */
    sim_let_others();
    found = sim_allocation_of((uintptr_t)address); /* another thread may have unregistered it */
    REFUSE_IF(!found || !found->registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    sim_allocation_remove(found);
    RETURN(CUDA_SUCCESS);
}

/* ---- words */
static bool is_wait(unsigned operation) { return operation == MEMOP_WAIT_32 || operation == MEMOP_WAIT_64; }
static unsigned width_of(unsigned operation) { return operation == MEMOP_WAIT_32 || operation == MEMOP_WRITE_32 ? 4 : 8; }

static bool is_met(uint64_t now, uint64_t wanted, unsigned width, unsigned flags) {
    switch (flags & 3) {
        case 0: /* measured: the signed difference decides */
            return width == 8 ? (int64_t)(now - wanted) >= 0 : (int32_t)((uint32_t)now - (uint32_t)wanted) >= 0;
        case 1: return now == wanted;
        case 2: return (now & wanted) != 0;
        default: return (width == 8 ? ~(now | wanted) : (uint32_t)~(now | wanted)) != 0;
    }
}

/* A write wakes no futex (measured). */
static bool run_one(const CUstreamBatchMemOpParams *params) {
    unsigned width = width_of(params->operation);
    pthread_mutex_lock(&sim.lock);
    void *at = sim_data(params->address, width);
    if (!at) sim_async(CUDA_ERROR_ILLEGAL_ADDRESS);
    pthread_mutex_unlock(&sim.lock);
    if (!at) return true;
    if (!is_wait(params->operation)) {
        if (width == 8) atomic_store((_Atomic uint64_t *)at, params->value);
        else atomic_store((_Atomic uint32_t *)at, (uint32_t)params->value);
        return true;
    }
    uint64_t now = width == 8 ? atomic_load((_Atomic uint64_t *)at) : atomic_load((_Atomic uint32_t *)at);
    uint64_t wanted = width == 8 ? params->value : (uint32_t)params->value;
    return is_met(now, wanted, width, params->flags);
}

static bool run_memops(sim_work *work, bool for_ever) {
    while (work->memops.next < work->memops.count) {
        if (run_one(&work->memops.params[work->memops.next])) {
            work->memops.next++;
            continue;
        }
        if (!for_ever) return false;
        struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
    }
    return true;
}

static void drop_memops(sim_work *work) { free(work->memops.params); }

static sim_work *copy_memops(const sim_work *work) {
    sim_work *copy = NULL;
    sim_memops_work(&copy, work->memops.params, work->memops.count);
    return copy;
}

CUresult sim_memops_work(sim_work **out, const CUstreamBatchMemOpParams *params, unsigned count) {
    if (!count || count > 255 || !params) return CUDA_ERROR_INVALID_VALUE; /* 255: documented */
    for (unsigned i = 0; i < count; i++) {
        unsigned operation = params[i].operation;
        if (operation != MEMOP_WRITE_32 && operation != MEMOP_WRITE_64 && !is_wait(operation)) return CUDA_ERROR_INVALID_VALUE;
        sim_allocation *found = sim_allocation_of(params[i].address);
        if (params[i].address % width_of(operation) || !sim_data(params[i].address, width_of(operation))) return CUDA_ERROR_INVALID_VALUE;
        if (found->read_only && !is_wait(operation)) return CUDA_ERROR_INVALID_VALUE;
    }
    sim_work *work = *out = sim_work_new(NODE_MEMOPS, run_memops);
    work->takes_place = true;
    work->memops.params = memcpy(malloc(count * sizeof *params), params, count * sizeof *params);
    work->memops.count = count;
    for (unsigned i = 0; i < count; i++) work->waits = work->waits || is_wait(params[i].operation);
    work->copy_of = copy_memops;
    work->drop = drop_memops;
    return CUDA_SUCCESS;
}

static CUresult append(CUstream handle, const CUstreamBatchMemOpParams *params, unsigned count) {
    sim_stream *stream;
    sim_work *work;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (!code) code = sim_memops_work(&work, params, count);
    if (code) return code;
    return sim_submit(stream, work);
}

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *params, unsigned flags) {
    CALL_AS(CALL_WORK, "stream=%p count=%u flags=%u params=%s", (void *)stream, count, flags,
            sim_hex(params, count <= 36 ? count * sizeof *params : 0));
    REFUSE_IF(flags, CUDA_ERROR_INVALID_VALUE);
    RETURN(append(stream, params, count));
}

#define WORD(Name, bits, type, wide)                                                                                       \
    EXPORT CUresult cuStream##Name##Value##bits##_v2(CUstream stream, CUdeviceptr at, type value, unsigned flags) {        \
        CALL_AS(CALL_WORK, "stream=%p addr=0x%llx value=%llu flags=%u", (void *)stream, at, (unsigned long long)value, flags); \
        CUstreamBatchMemOpParams params = {.operation = wide, .address = at, .value = value, .flags = flags};              \
        RETURN(append(stream, &params, 1));                                                                                \
    }
WORD(Wait, 32, uint32_t, MEMOP_WAIT_32)
WORD(Write, 32, uint32_t, MEMOP_WRITE_32)
WORD(Wait, 64, uint64_t, MEMOP_WAIT_64)
WORD(Write, 64, uint64_t, MEMOP_WRITE_64)

/* ---- nodes of graphs */
EXPORT CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    CALL("node=%p", (void *)handle);
    sim_node *node = sim_known(handle, SIM_NODE);
    REFUSE_IF(!node || !params || node->work->node != NODE_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    sim_context *context = NULL;
    sim_current(&context);
    *params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){context, node->work->memops.count, node->work->memops.params, 0};
    RETURN(CUDA_SUCCESS);
}

/* Number and kinds of the operations stay (documented). */
EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec_handle, CUgraphNode node,
                                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    CALL("exec=%p node=%p params=%s", (void *)exec_handle, (void *)node, sim_hex(params, sizeof *params));
    sim_exec *exec = sim_known(exec_handle, SIM_EXEC);
    sim_work **at = NULL, *work;
    for (unsigned i = 0; exec && exec->object.alive && i < exec->count; i++)
        if (exec->origin[i] == node) at = &exec->nodes[i];
    REFUSE_IF(!at || !params || (*at)->node != NODE_MEMOPS || (*at)->memops.count != params->count, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < params->count; i++)
        REFUSE_IF(params->params[i].operation != (*at)->memops.params[i].operation, CUDA_ERROR_INVALID_VALUE);
    TRY(sim_memops_work(&work, params->params, params->count));
    sim_work_drop(*at);
    *at = work;
    RETURN(CUDA_SUCCESS);
}
