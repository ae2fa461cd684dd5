/* Work without semaphores and images: barriers, events, copies and fills of memory. */
#include "work.h"

ze_result_t zeCommandListAppendBarrier(ze_command_list_handle_t handle, ze_event_handle_t signal, uint32_t wait_count,
                                       ze_event_handle_t *waits) {
    CALL("list=%p signal=%p waits=%u", (void *)handle, (void *)signal, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    sim_op *op = sim_op_new(DO_NOTHING);
    op->comes_after_all = wait_count == 0; /* with events, it waits only for these */
    op->holds_back = true;
    RETURN(sim_append(list, op, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t handle, uint32_t range_count, const size_t *sizes,
                                                   const void **ranges, ze_event_handle_t signal, uint32_t wait_count,
                                                   ze_event_handle_t *waits) {
    CALL("list=%p ranges=%u signal=%p waits=%u", (void *)handle, range_count, (void *)signal, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    NEEDS(sizes && ranges);
    sim_op *op = sim_op_new(DO_NOTHING);
    op->comes_after_all = wait_count == 0;
    op->holds_back = true;
    RETURN(sim_append(list, op, signal, wait_count, waits));
}

/* ---- events */
ze_result_t zeCommandListAppendWaitOnEvents(ze_command_list_handle_t handle, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p waits=%u", (void *)handle, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    NEEDS(waits);
    sim_op *op = sim_op_new(DO_NOTHING);
    op->holds_back = true;
    RETURN(sim_append(list, op, NULL, wait_count, waits));
}

static ze_result_t set_event(ze_command_list_handle_t handle, ze_event_handle_t event_handle, bool signalled) {
    sim_list *list;
    sim_event *event;
    ze_result_t code = sim_list_open(handle, &list);
    if (!code) code = sim_get(event_handle, SIM_EVENT, &event);
    if (code) return code;
    sim_op *op = sim_op_new(DO_EVENT);
    op->set.event = event;
    op->set.signalled = signalled;
    return sim_append(list, op, NULL, 0, NULL);
}

ze_result_t zeCommandListAppendSignalEvent(ze_command_list_handle_t handle, ze_event_handle_t event) {
    CALL("list=%p event=%p", (void *)handle, (void *)event);
    RETURN(set_event(handle, event, true));
}

ze_result_t zeCommandListAppendEventReset(ze_command_list_handle_t handle, ze_event_handle_t event) {
    CALL("list=%p event=%p", (void *)handle, (void *)event);
    RETURN(set_event(handle, event, false));
}

/* ---- memory */
ze_result_t zeCommandListAppendMemoryCopy(ze_command_list_handle_t handle, void *to, const void *from, size_t size,
                                          ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p size=%zu signal=%p waits=%u", (void *)handle, to, from, size, (void *)signal, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    NEEDS(to && from);
    sim_op *op = sim_op_new(DO_COPY);
    op->copy.to.data = sim_data(to, size, &op->copy.to.allocation);
    op->copy.from.data = sim_data(from, size, &op->copy.from.allocation);
    op->copy.width = size;
    op->copy.height = op->copy.depth = 1;
    RETURN(sim_append(list, op, signal, wait_count, waits));
}

/* A pitch of 0 is the pitch of the region. */
static void side_of(sim_side *side, const void *address, const ze_copy_region_t *region, uint32_t pitch, uint32_t slice_pitch) {
    size_t height = region->height ? region->height : 1, depth = region->depth ? region->depth : 1;
    side->row = pitch ? pitch : region->width;
    side->slice = slice_pitch ? slice_pitch : side->row * height;
    size_t first = region->originZ * side->slice + region->originY * side->row + region->originX;
    size_t last = first + (depth - 1) * side->slice + (height - 1) * side->row + region->width;
    side->data = sim_data((const char *)address + first, last - first, &side->allocation);
}

ze_result_t zeCommandListAppendMemoryCopyRegion(ze_command_list_handle_t handle, void *to, const ze_copy_region_t *to_region,
                                                uint32_t to_pitch, uint32_t to_slice_pitch, const void *from,
                                                const ze_copy_region_t *from_region, uint32_t from_pitch,
                                                uint32_t from_slice_pitch, ze_event_handle_t signal, uint32_t wait_count,
                                                ze_event_handle_t *waits) {
    CALL("list=%p dst=%p dstRegion=%s dstPitch=%u dstSlicePitch=%u src=%p srcRegion=%s srcPitch=%u srcSlicePitch=%u signal=%p waits=%u",
         (void *)handle, to, sim_hex(to_region, sizeof *to_region), to_pitch, to_slice_pitch, from,
         sim_hex(from_region, sizeof *from_region), from_pitch, from_slice_pitch, (void *)signal, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    NEEDS(to && from && to_region && from_region);
    REFUSE_IF(to_region->width != from_region->width || to_region->height != from_region->height ||
                  to_region->depth != from_region->depth, ZE_RESULT_ERROR_INVALID_SIZE);
    sim_op *op = sim_op_new(DO_COPY);
    side_of(&op->copy.to, to, to_region, to_pitch, to_slice_pitch);
    side_of(&op->copy.from, from, from_region, from_pitch, from_slice_pitch);
    op->copy.width = to_region->width;
    op->copy.height = to_region->height ? to_region->height : 1;
    op->copy.depth = to_region->depth ? to_region->depth : 1;
    RETURN(sim_append(list, op, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendMemoryFill(ze_command_list_handle_t handle, void *to, const void *pattern, size_t pattern_size,
                                          size_t size, ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p ptr=%p pattern=%s size=%zu signal=%p waits=%u", (void *)handle, to, sim_hex(pattern, pattern_size), size,
         (void *)signal, wait_count);
    sim_list *list;
    TRY(sim_list_open(handle, &list));
    NEEDS(to && pattern);
    size_t longest = list->ordinal == 0 ? MAX_PATTERN : 1;
    REFUSE_IF(pattern_size == 0 || pattern_size > longest || (pattern_size & (pattern_size - 1)), ZE_RESULT_ERROR_INVALID_SIZE);
    sim_op *op = sim_op_new(DO_FILL);
    op->fill.to.data = sim_data(to, size, &op->fill.to.allocation);
    op->fill.size = size;
    op->fill.pattern_size = pattern_size;
    op->fill.pattern = memcpy(malloc(pattern_size), pattern, pattern_size);
    RETURN(sim_append(list, op, signal, wait_count, waits));
}
