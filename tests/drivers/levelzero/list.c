/* Queues and command lists: order, and the worker threads. An in-order lane has one worker. In a lane without order each operation
 * has a separate thread and begins as soon as barriers and events allow it, so a missing barrier is visible. */
#include "work.h"


/* ---- the workers */
/* An engine: its operations in the order of the appends, and the one that waits for a semaphore. Nothing else begins there
 * meanwhile (SIMZE_ENGINES). */
typedef struct {
    sim_op *first;
    const sim_op *stalling;
} sim_engine;

static sim_engine engines[MAX_DEVICES][MAX_GROUPS][MAX_DEVICES];

void sim_engines_forget(void) { memset(engines, 0, sizeof engines); }

static sim_engine *engine_of(const sim_op *op) {
    return &engines[op->lane->device->number][op->lane->ordinal][op->lane->index];
}

static bool lane_lets_begin(const sim_op *op) {
    for (const sim_op *each = op->lane->head; each != op; each = each->next)
        if (!each->done && (op->comes_after_all || each->holds_back)) return false;
    for (uint32_t i = 0; i < op->wait_count; i++)
        if (!op->waits[i]->signalled) return false;
    return true;
}

/* An engine takes work in the order of the appends: a wait stalls no earlier operation of another list that can begin. */
static bool engine_lets_begin(const sim_op *op) {
    const sim_engine *engine = engine_of(op);
    if (engine->stalling) return false;
    for (const sim_op *each = engine->first; op->what == DO_WAIT && each != op; each = each->next_of_engine)
        if (lane_lets_begin(each)) return false;
    return true;
}

static bool may_begin(const sim_op *op) { return lane_lets_begin(op) && (!sim.engines || engine_lets_begin(op)); }

static void take_out(sim_op *op) {
    sim_lane *lane = op->lane;
    sim_op **link = &engine_of(op)->first;
    while (*link != op) link = &(*link)->next_of_engine;
    *link = op->next_of_engine;
    sim_op *before = NULL;
    for (sim_op *each = lane->head; each != op; each = each->next) before = each;
    if (before) before->next = op->next;
    else lane->head = op->next;
    if (lane->tail == op) lane->tail = before;
}

/* Called with the lock, releases it meanwhile. */
static void perform(sim_op *op) {
    while (!may_begin(op)) pthread_cond_wait(&sim.changed, &sim.lock);
    bool stalls = sim.engines && op->what == DO_WAIT;
    if (stalls) engine_of(op)->stalling = op;
    pthread_mutex_unlock(&sim.lock);
    sim_op_run(op);
    pthread_mutex_lock(&sim.lock);
    if (stalls) engine_of(op)->stalling = NULL;
    if (op->what == DO_SIGNAL && op->lane->tail == op) sim_be_late();
    if (op->signal) op->signal->signalled = true;
    if (op->what == DO_FENCE) op->fence->signalled = true;
    op->done = true;
    sim_op_count(op, -1);
    take_out(op);
    op->lane->pending--;
    sim_op_free(op);
    pthread_cond_broadcast(&sim.changed);
}

static void *work_in_order(void *argument) {
    sim_lane *lane = argument;
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        while (!lane->head && !lane->ending) pthread_cond_wait(&lane->more, &sim.lock);
        if (!lane->head) break;
        perform(lane->head);
    }
    pthread_mutex_unlock(&sim.lock);
    free(lane);
    return NULL;
}

static void *work_on_one(void *argument) {
    pthread_mutex_lock(&sim.lock);
    perform(argument);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static void enqueue(sim_lane *lane, sim_op *op) {
    op->lane = lane;
    op->next = op->next_of_engine = NULL;
    sim_op **link = &engine_of(op)->first;
    while (*link) link = &(*link)->next_of_engine;
    *link = op;
    if (lane->tail) lane->tail->next = op;
    else lane->head = op;
    lane->tail = op;
    lane->pending++;
    sim_op_count(op, 1);
    if (!lane->in_order) {
        sim_start_thread(work_on_one, op);
        return;
    }
    op->comes_after_all = op->holds_back = true;
    if (!lane->has_worker) sim_start_thread(work_in_order, lane);
    lane->has_worker = true;
    pthread_cond_signal(&lane->more);
}

static sim_lane *lane_new(sim_lane *lane, sim_context *context, sim_device *device, const ze_command_queue_desc_t *desc) {
    lane->context = context;
    lane->device = device;
    lane->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    lane->in_order = desc->flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
    lane->ordinal = desc->ordinal;
    lane->index = desc->index;
    pthread_cond_init(&lane->more, NULL);
    context->users++;
    return lane;
}

static ze_result_t lane_synchronize(sim_lane *lane, uint64_t timeout_ns) {
    int64_t deadline_ns = sim_deadline(timeout_ns);
    while (lane->pending)
        if (!sim_sleep(deadline_ns)) return ZE_RESULT_NOT_READY;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_queue(const ze_command_queue_desc_t *desc) {
    if (desc->ordinal >= MAX_GROUPS || desc->index >= (desc->ordinal == 0 ? sim.queues : sim.copy_queues)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return (desc->flags & ~7u) || desc->mode > 2 || desc->priority > 2 ? ZE_RESULT_ERROR_INVALID_ENUMERATION : ZE_RESULT_SUCCESS;
}

/* ---- lists */
static sim_list *list_new(sim_context *context, sim_device *device, uint32_t ordinal) {
    sim_list *list = sim_new(SIM_LIST, sizeof *list);
    list->context = context;
    list->device = device;
    list->ordinal = ordinal;
    return list;
}

ze_result_t zeCommandListCreateImmediate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                                         const ze_command_queue_desc_t *desc, ze_command_list_handle_t *out) {
    CALL("context=%p device=%p desc=%s", (void *)context_handle, (void *)device_handle, sim_hex(desc, sizeof *desc));
    sim_context *context;
    sim_device *device;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    TRY(check_queue(desc));
    sim_list *list = list_new(context, device, desc->ordinal);
    list->lane = lane_new(calloc(1, sizeof *list->lane), context, device, desc);
    list->in_order = list->lane->in_order;
    *out = list;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListCreate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                                const ze_command_list_desc_t *desc, ze_command_list_handle_t *out) {
    CALL("context=%p device=%p desc=%s", (void *)context_handle, (void *)device_handle, sim_hex(desc, sizeof *desc));
    sim_context *context;
    sim_device *device;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    REFUSE_IF(desc->commandQueueGroupOrdinal >= MAX_GROUPS, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    REFUSE_IF(desc->flags & ~0x3fu, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    sim_list *list = list_new(context, device, desc->commandQueueGroupOrdinal);
    list->in_order = desc->flags & ZE_COMMAND_LIST_FLAG_IN_ORDER;
    context->users++;
    *out = list;
    RETURN(ZE_RESULT_SUCCESS);
}

static void forget(sim_list *list) {
    for (uint32_t i = 0; i < list->recorded_count; i++) sim_op_free(list->recorded[i]);
    free(list->recorded);
    list->recorded = NULL;
    list->recorded_count = 0;
    list->closed = false;
}

ze_result_t zeCommandListDestroy(ze_command_list_handle_t handle) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    if (list->lane) {
        if (list->lane->pending) sim_abort("this command list is destroyed while its work is queued");
        list->lane->ending = true;
        pthread_cond_signal(&list->lane->more);
        if (!list->lane->has_worker) free(list->lane);
    } else if (list->ran_on && list->ran_on->object.alive && list->ran_on->pending) {
        sim_abort("this command list is destroyed while its work is queued");
    }
    forget(list);
    list->context->users--;
    list->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListClose(ze_command_list_handle_t handle) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    if (!list->lane) list->closed = true;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListReset(ze_command_list_handle_t handle) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    if (!list->lane) forget(list);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t handle, uint64_t timeout_ns) {
    CALL("list=%p timeout=%llu", (void *)handle, (unsigned long long)timeout_ns);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    REFUSE_IF(!list->lane, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    RETURN(lane_synchronize(list->lane, timeout_ns));
}

ze_result_t zeCommandListIsImmediate(ze_command_list_handle_t handle, ze_bool_t *out) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    NEEDS(out);
    *out = list->lane != NULL;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListGetDeviceHandle(ze_command_list_handle_t handle, ze_device_handle_t *out) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    NEEDS(out);
    *out = list->device;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListGetContextHandle(ze_command_list_handle_t handle, ze_context_handle_t *out) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    NEEDS(out);
    *out = list->context;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListGetOrdinal(ze_command_list_handle_t handle, uint32_t *out) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    NEEDS(out);
    *out = list->ordinal;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandListImmediateGetIndex(ze_command_list_handle_t handle, uint32_t *out) {
    CALL("list=%p", (void *)handle);
    sim_list *list;
    TRY(sim_get(handle, SIM_LIST, &list));
    NEEDS(out);
    REFUSE_IF(!list->lane, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    *out = list->lane->index;
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- append */
ze_result_t sim_list_open(ze_command_list_handle_t handle, sim_list **out) {
    ze_result_t code = sim_get(handle, SIM_LIST, out);
    if (code) return code;
    sim_list *list = *out;
    if (list->entered) {
        atomic_fetch_add(&sim.counters->overlaps, 1);
        sim_note("# overlap: list=%p", (void *)list);
    } else if (sim.append_us) {
        list->entered = true;
        pthread_mutex_unlock(&sim.lock);
        usleep(sim.append_us);
        pthread_mutex_lock(&sim.lock);
        list->entered = false;
    }
    return list->closed ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_SUCCESS;
}

ze_result_t sim_append(sim_list *list, sim_op *op, sim_event *signal, uint32_t wait_count, sim_event *const *waits) {
    sim_event *found;
    ze_result_t code = sim_events(waits, wait_count);
    if (!code && signal) code = sim_get(signal, SIM_EVENT, &found);
    if (code) {
        sim_op_free(op);
        return code;
    }
    op->signal = signal;
    op->wait_count = wait_count;
    op->waits = malloc((wait_count ? wait_count : 1) * sizeof *waits);
    if (wait_count) memcpy(op->waits, waits, wait_count * sizeof *waits);
    if (!list->lane) {
        list->recorded = realloc(list->recorded, (list->recorded_count + 1) * sizeof *list->recorded);
        list->recorded[list->recorded_count++] = op;
        return ZE_RESULT_SUCCESS;
    }
    enqueue(list->lane, op);
    return list->lane->synchronous ? lane_synchronize(list->lane, UINT64_MAX) : ZE_RESULT_SUCCESS;
}

/* ---- queues */
ze_result_t zeCommandQueueCreate(ze_context_handle_t context_handle, ze_device_handle_t device_handle,
                                 const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *out) {
    CALL("context=%p device=%p desc=%s", (void *)context_handle, (void *)device_handle, sim_hex(desc, sizeof *desc));
    sim_context *context;
    sim_device *device;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    TRY(check_queue(desc));
    sim_lane *queue = lane_new(sim_new(SIM_QUEUE, sizeof *queue), context, device, desc);
    queue->in_order = false; /* only lists have an order */
    *out = queue;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandQueueDestroy(ze_command_queue_handle_t handle) {
    CALL("queue=%p", (void *)handle);
    sim_lane *queue;
    TRY(sim_get(handle, SIM_QUEUE, &queue));
    if (queue->pending) sim_abort("this command queue is destroyed while its work is queued");
    queue->context->users--;
    queue->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t handle, uint32_t count,
                                              ze_command_list_handle_t *lists, ze_fence_handle_t fence_handle) {
    CALL("queue=%p lists=%u fence=%p", (void *)handle, count, (void *)fence_handle);
    sim_lane *queue;
    sim_list *list;
    sim_fence *fence = NULL;
    TRY(sim_get(handle, SIM_QUEUE, &queue));
    NEEDS(lists);
    REFUSE_IF(count == 0, ZE_RESULT_ERROR_INVALID_SIZE);
    if (fence_handle) TRY(sim_get(fence_handle, SIM_FENCE, &fence));
    for (uint32_t i = 0; i < count; i++) {
        TRY(sim_get(lists[i], SIM_LIST, &list));
        REFUSE_IF(list->lane || list->ordinal != queue->ordinal, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        REFUSE_IF(!list->closed, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    for (uint32_t i = 0; i < count; i++) {
        list = lists[i];
        list->ran_on = queue;
        for (uint32_t k = 0; k < list->recorded_count; k++) {
            sim_op *op = sim_op_copy(list->recorded[k]);
            if (list->in_order) op->comes_after_all = op->holds_back = true;
            enqueue(queue, op);
        }
    }
    if (fence) {
        sim_op *op = sim_op_new(DO_FENCE);
        op->fence = fence;
        op->comes_after_all = true;
        enqueue(queue, op);
    }
    RETURN(queue->synchronous ? lane_synchronize(queue, UINT64_MAX) : ZE_RESULT_SUCCESS);
}

ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t handle, uint64_t timeout_ns) {
    CALL("queue=%p timeout=%llu", (void *)handle, (unsigned long long)timeout_ns);
    sim_lane *queue;
    TRY(sim_get(handle, SIM_QUEUE, &queue));
    RETURN(lane_synchronize(queue, timeout_ns));
}
