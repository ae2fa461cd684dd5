/* Contexts: the primary context of each device, further contexts, and the stack of each thread. */
#include "sim.h"

CUresult sim_current(sim_context **out) {
    if (sim_self.in_host_function) return CUDA_ERROR_NOT_PERMITTED; /* measured */
    if (sim_self.depth == 0 || !sim_self.stack[sim_self.depth - 1]) return CUDA_ERROR_INVALID_CONTEXT;
    *out = sim_self.stack[sim_self.depth - 1];
    return (*out)->object.alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Primary contexts have fixed addresses, outside the table of objects. */
static sim_context *context_of(CUcontext handle) {
    if (handle >= sim.primary && handle < sim.primary + MAX_DEVICES) return handle;
    return sim_known(handle, SIM_CONTEXT);
}

static sim_context *own; /* the newest; `before` leads to the others */

sim_context *sim_context_at(size_t number) {
    if (number < MAX_DEVICES) return &sim.primary[number];
    sim_context *context = own;
    for (number -= MAX_DEVICES; context && number; number--) context = context->before;
    return context;
}

static void start(sim_context *context, int device) {
    context->object.kind = SIM_CONTEXT;
    context->object.alive = true;
    context->device = device;
    context->id = sim.next_id++;
    context->streams = NULL;
    context->legacy = sim_stream_new(context, 0, 0);
    context->legacy->is_legacy = true;
}

CUresult sim_context_destroy(sim_context *context) {
    sim_drain_context(context); /* measured: blocks behind an unmet wait */
    sim_free_all(context);
    for (sim_stream *each = context->streams; each; each = each->sibling) {
        each->object.alive = false;
        pthread_cond_broadcast(&each->more);
    }
    context->object.alive = false;
    return CUDA_SUCCESS;
}

/* ---- the primary context */
#define PRIMARY(device) (&sim.primary[device])
#define CHECK_DEVICE(device) REFUSE_IF((device) < 0 || (device) >= sim.device_count, CUDA_ERROR_INVALID_DEVICE)

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    sim_context *context = PRIMARY(device);
    if (!context->object.alive) {
        start(context, device);
        context->primary = true;
    }
    context->retained++;
    *out = context;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CALL("dev=%d", device);
    CHECK_DEVICE(device);
    sim_context *context = PRIMARY(device);
    REFUSE_IF(!context->object.alive || context->retained == 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--context->retained == 0) sim_context_destroy(context);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CALL("dev=%d", device);
    REFUSE_IF(!flags || !active, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    *flags = PRIMARY(device)->flags;
    *active = PRIMARY(device)->object.alive;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    CALL("dev=%d flags=%u", device, flags);
    CHECK_DEVICE(device);
    PRIMARY(device)->flags = flags;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

/* ---- the stack of each thread */
EXPORT CUresult cuCtxGetCurrent(CUcontext *out) {
    CALL("%s", "");
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(sim_self.in_host_function, CUDA_ERROR_NOT_PERMITTED);
    *out = sim_self.depth ? sim_self.stack[sim_self.depth - 1] : NULL;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    CALL("ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    REFUSE_IF(!handle || !context || sim_self.depth == MAX_STACK, CUDA_ERROR_INVALID_VALUE);
    sim_self.stack[sim_self.depth++] = context;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *out) {
    CALL("%s", "");
    REFUSE_IF(sim_self.depth == 0, CUDA_ERROR_INVALID_CONTEXT);
    sim_context *context = sim_self.stack[--sim_self.depth];
    if (out) *out = context;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext handle) {
    CALL("ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    REFUSE_IF(handle && !context, CUDA_ERROR_INVALID_CONTEXT);
    if (sim_self.depth) sim_self.depth--;
    if (context) sim_self.stack[sim_self.depth++] = context;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    CALL("%s", "");
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
    CALL("ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    if (!handle) TRY(sim_current(&context));
    REFUSE_IF(!context || !device, CUDA_ERROR_INVALID_VALUE);
    *device = context->device;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
    CALL("ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    if (!handle) TRY(sim_current(&context));
    REFUSE_IF(!context || !id, CUDA_ERROR_INVALID_VALUE);
    *id = context->id;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
    CALL("%s", "");
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!flags, CUDA_ERROR_INVALID_VALUE);
    *flags = context->flags;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned *version) {
    CALL("ctx=%p", (void *)handle);
    REFUSE_IF(!version || (handle && !context_of(handle)), CUDA_ERROR_INVALID_VALUE);
    *version = 3020;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CALL("%s", "");
    sim_context *context;
    TRY(sim_current(&context));
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    RETURN(CUDA_SUCCESS);
}

/* ---- further contexts */
static CUresult create(CUcontext *out, unsigned flags, CUdevice device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sim.device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (sim_self.depth == MAX_STACK) return CUDA_ERROR_OUT_OF_MEMORY;
    sim_context *context = sim_new(SIM_CONTEXT, sizeof *context);
    context->before = own;
    own = context;
    start(context, device);
    context->flags = flags;
    sim_self.stack[sim_self.depth++] = context;
    *out = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device) {
    CALL("flags=%u dev=%d", flags, device);
    RETURN(create(out, flags, device));
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *out, void *affinities, int count, unsigned flags, CUdevice device) {
    CALL("affinities=%p count=%d flags=%u dev=%d", affinities, count, flags, device);
    RETURN(create(out, flags, device));
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice device) {
    CALL("params=%p flags=%u dev=%d", params, flags, device);
    RETURN(create(out, flags, device));
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle) {
    CALL("ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    REFUSE_IF(!context, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(context->primary || !context->object.alive, CUDA_ERROR_INVALID_CONTEXT);
    sim_context_destroy(context);
    if (sim_self.depth && sim_self.stack[sim_self.depth - 1] == context) sim_self.depth--;
    RETURN(CUDA_SUCCESS);
}

/* ---- synchronize */
static CUresult synchronize(sim_context *context) {
    bool captured = false;
    for (sim_stream *each = context->streams; each; each = each->sibling) {
        if (!each->object.alive || !each->capture) continue;
        sim_capture_invalidate(each->capture); /* measured: in every mode */
        captured = true;
    }
    if (captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_drain_context(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
    CALL_AS(CALL_WORK, "%s", "");
    sim_context *context;
    TRY(sim_current(&context));
    RETURN(synchronize(context));
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle) {
    CALL_AS(CALL_WORK, "ctx=%p", (void *)handle);
    sim_context *context = context_of(handle);
    if (!handle) TRY(sim_current(&context));
    REFUSE_IF(!context || !context->object.alive, CUDA_ERROR_INVALID_CONTEXT);
    RETURN(synchronize(context));
}
