/* Event pools, events and fences. */
#include "sim.h"

ze_result_t zeEventPoolCreate(ze_context_handle_t handle, const ze_event_pool_desc_t *desc, uint32_t device_count,
                              ze_device_handle_t *in, ze_event_pool_handle_t *out) {
    CALL("context=%p desc=%s devices=%u", (void *)handle, sim_hex(desc, sizeof *desc), device_count);
    sim_context *context;
    sim_device *device;
    TRY(sim_get(handle, SIM_CONTEXT, &context));
    NEEDS(desc && out);
    REFUSE_IF(desc->count == 0 || (device_count && !in), ZE_RESULT_ERROR_INVALID_SIZE);
    REFUSE_IF(desc->flags & ~0xfu, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    for (uint32_t i = 0; i < device_count; i++) TRY(sim_get(in[i], SIM_DEVICE, &device));
    sim_pool *pool = sim_new(SIM_POOL, sizeof *pool);
    pool->context = context;
    pool->flags = desc->flags;
    pool->count = desc->count;
    pool->slot = calloc(desc->count, sizeof *pool->slot);
    context->users++;
    *out = pool;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventPoolDestroy(ze_event_pool_handle_t handle) {
    CALL("pool=%p", (void *)handle);
    sim_pool *pool;
    TRY(sim_get(handle, SIM_POOL, &pool));
    for (uint32_t i = 0; i < pool->count; i++)
        if (pool->slot[i]) sim_abort("this event pool is destroyed before its events");
    free(pool->slot);
    pool->context->users--;
    pool->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventCreate(ze_event_pool_handle_t handle, const ze_event_desc_t *desc, ze_event_handle_t *out) {
    CALL("pool=%p desc=%s", (void *)handle, sim_hex(desc, sizeof *desc));
    sim_pool *pool;
    TRY(sim_get(handle, SIM_POOL, &pool));
    NEEDS(desc && out);
    REFUSE_IF(desc->signal > 7 || desc->wait > 7, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    REFUSE_IF(desc->index >= pool->count, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    /* Real drivers give both the same memory. */
    if (pool->slot[desc->index]) sim_abort("this place of the pool has an event");
    sim_event *event = sim_new(SIM_EVENT, sizeof *event);
    event->pool = pool;
    event->index = desc->index;
    pool->slot[desc->index] = event;
    *out = event;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventDestroy(ze_event_handle_t handle) {
    CALL("event=%p", (void *)handle);
    sim_event *event;
    TRY(sim_get(handle, SIM_EVENT, &event));
    if (event->queued) sim_abort("this event is destroyed while work that is queued waits for it or signals it");
    event->pool->slot[event->index] = NULL;
    event->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

static ze_result_t visible(ze_event_handle_t handle, sim_event **out) {
    ze_result_t code = sim_get(handle, SIM_EVENT, out);
    if (code) return code;
    return (*out)->pool->flags & ZE_EVENT_POOL_FLAG_HOST_VISIBLE ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t zeEventHostSignal(ze_event_handle_t handle) {
    CALL("event=%p", (void *)handle);
    sim_event *event;
    TRY(visible(handle, &event));
    event->signalled = true;
    pthread_cond_broadcast(&sim.changed);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventHostReset(ze_event_handle_t handle) {
    CALL("event=%p", (void *)handle);
    sim_event *event;
    TRY(visible(handle, &event));
    event->signalled = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventQueryStatus(ze_event_handle_t handle) {
    CALL("event=%p", (void *)handle);
    sim_event *event;
    TRY(visible(handle, &event));
    RETURN(event->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY);
}

ze_result_t zeEventHostSynchronize(ze_event_handle_t handle, uint64_t timeout_ns) {
    CALL("event=%p timeout=%llu", (void *)handle, (unsigned long long)timeout_ns);
    sim_event *event;
    TRY(visible(handle, &event));
    int64_t deadline_ns = sim_deadline(timeout_ns);
    while (!event->signalled)
        if (!sim_sleep(deadline_ns)) RETURN(ZE_RESULT_NOT_READY);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeEventGetEventPool(ze_event_handle_t handle, ze_event_pool_handle_t *out) {
    CALL("event=%p", (void *)handle);
    sim_event *event;
    TRY(sim_get(handle, SIM_EVENT, &event));
    NEEDS(out);
    *out = event->pool;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t sim_events(sim_event *const *events, uint32_t count) {
    sim_event *event;
    if (count && !events) return ZE_RESULT_ERROR_INVALID_SIZE;
    for (uint32_t i = 0; i < count; i++) {
        ze_result_t code = sim_get(events[i], SIM_EVENT, &event);
        if (code) return code;
    }
    return ZE_RESULT_SUCCESS;
}

/* ---- fences */
ze_result_t zeFenceCreate(ze_command_queue_handle_t handle, const ze_fence_desc_t *desc, ze_fence_handle_t *out) {
    CALL("queue=%p desc=%s", (void *)handle, sim_hex(desc, sizeof *desc));
    ze_command_queue_handle_t queue;
    TRY(sim_get(handle, SIM_QUEUE, &queue));
    NEEDS(desc && out);
    sim_fence *fence = sim_new(SIM_FENCE, sizeof *fence);
    fence->queue = queue;
    fence->signalled = desc->flags & 1;
    *out = fence;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeFenceDestroy(ze_fence_handle_t handle) {
    CALL("fence=%p", (void *)handle);
    sim_fence *fence;
    TRY(sim_get(handle, SIM_FENCE, &fence));
    if (fence->queued) sim_abort("this fence is destroyed while work that is queued signals it");
    fence->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeFenceQueryStatus(ze_fence_handle_t handle) {
    CALL("fence=%p", (void *)handle);
    sim_fence *fence;
    TRY(sim_get(handle, SIM_FENCE, &fence));
    RETURN(fence->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY);
}

ze_result_t zeFenceReset(ze_fence_handle_t handle) {
    CALL("fence=%p", (void *)handle);
    sim_fence *fence;
    TRY(sim_get(handle, SIM_FENCE, &fence));
    fence->signalled = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeFenceHostSynchronize(ze_fence_handle_t handle, uint64_t timeout_ns) {
    CALL("fence=%p timeout=%llu", (void *)handle, (unsigned long long)timeout_ns);
    sim_fence *fence;
    TRY(sim_get(handle, SIM_FENCE, &fence));
    int64_t deadline_ns = sim_deadline(timeout_ns);
    while (!fence->signalled)
        if (!sim_sleep(deadline_ns)) RETURN(ZE_RESULT_NOT_READY);
    RETURN(ZE_RESULT_SUCCESS);
}
