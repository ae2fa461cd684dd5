/* Commands that the layer only observes: they flush a queue, or use imported memory. */
#include "sim.h"

/* ---- flushes */
cl_int clFlush(cl_command_queue queue) {
    CALL("queue=%p", (void *)queue);
    sim_flush(queue);
    RETURN(below.clFlush(queue));
}

cl_int clFinish(cl_command_queue queue) {
    CALL("queue=%p", (void *)queue);
    sim_flush(queue);
    RETURN(below.clFinish(queue));
}

cl_int clReleaseCommandQueue(cl_command_queue queue) {
    CALL("queue=%p", (void *)queue);
    sim_flush(queue); /* "performs an implicit flush" */
    RETURN(below.clReleaseCommandQueue(queue));
}

cl_int clWaitForEvents(cl_uint count, const cl_event *events) {
    CALL("count=%u event=%p", count, count && events ? (void *)*events : NULL);
    sim_flush_events(count, events);
    RETURN(below.clWaitForEvents(count, events));
}

/* ---- transfers: a blocking one flushes */
#define COMMAND(name, parameters, buffer, other, blocking, ...)        \
    cl_int name parameters {                                           \
        CALL("queue=%p mem=%p events=%u", (void *)queue, (void *)(buffer), event_count); \
        sim_used(buffer);                                              \
        sim_used(other);                                               \
        if (blocking) sim_flush(queue);                                \
        RETURN(below.name(queue, __VA_ARGS__, event_count, events, event)); \
    }
#define WAITS cl_uint event_count, const cl_event *events, cl_event *event

COMMAND(clEnqueueReadBuffer, (cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size, void *to, WAITS),
        mem, NULL, blocking, mem, blocking, offset, size, to)
COMMAND(clEnqueueWriteBuffer,
        (cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size, const void *from, WAITS),
        mem, NULL, blocking, mem, blocking, offset, size, from)
COMMAND(clEnqueueCopyBuffer, (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t size, WAITS),
        from, to, false, from, to, from_at, to_at, size)
COMMAND(clEnqueueFillBuffer,
        (cl_command_queue queue, cl_mem mem, const void *pattern, size_t pattern_size, size_t offset, size_t size, WAITS),
        mem, NULL, false, mem, pattern, pattern_size, offset, size)
COMMAND(clEnqueueReadBufferRect,
        (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *at, const size_t *host_at, const size_t *region,
         size_t row, size_t slice, size_t host_row, size_t host_slice, void *to, WAITS),
        mem, NULL, blocking, mem, blocking, at, host_at, region, row, slice, host_row, host_slice, to)
COMMAND(clEnqueueWriteBufferRect,
        (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *at, const size_t *host_at, const size_t *region,
         size_t row, size_t slice, size_t host_row, size_t host_slice, const void *from, WAITS),
        mem, NULL, blocking, mem, blocking, at, host_at, region, row, slice, host_row, host_slice, from)
COMMAND(clEnqueueCopyBufferRect,
        (cl_command_queue queue, cl_mem from, cl_mem to, const size_t *from_at, const size_t *to_at, const size_t *region,
         size_t row, size_t slice, size_t to_row, size_t to_slice, WAITS),
        from, to, false, from, to, from_at, to_at, region, row, slice, to_row, to_slice)
COMMAND(clEnqueueReadImage,
        (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *at, const size_t *region, size_t row, size_t slice,
         void *to, WAITS),
        NULL, NULL, blocking, mem, blocking, at, region, row, slice, to)
COMMAND(clEnqueueWriteImage,
        (cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *at, const size_t *region, size_t row, size_t slice,
         const void *from, WAITS),
        NULL, NULL, blocking, mem, blocking, at, region, row, slice, from)

cl_int clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *to, const void *from, size_t size, WAITS) {
    CALL("queue=%p size=%zu", (void *)queue, size);
    if (blocking) sim_flush(queue);
    RETURN(below.clEnqueueSVMMemcpy(queue, blocking, to, from, size, event_count, events, event));
}

cl_int clEnqueueSVMMap(cl_command_queue queue, cl_bool blocking, cl_bitfield flags, void *address, size_t size, WAITS) {
    CALL("queue=%p size=%zu", (void *)queue, size);
    if (blocking) sim_flush(queue);
    RETURN(below.clEnqueueSVMMap(queue, blocking, flags, address, size, event_count, events, event));
}

void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_bitfield flags, size_t offset, size_t size, WAITS,
                         cl_int *code_ret) {
    cl_int code = sim_enter(__func__, "queue=%p mem=%p events=%u", (void *)queue, (void *)mem, event_count);
    void *mapped = NULL;
    if (!code) {
        sim_used(mem);
        if (blocking) sim_flush(queue);
        mapped = below.clEnqueueMapBuffer(queue, mem, blocking, flags, offset, size, event_count, events, event, &code);
    }
    code = sim_leave(__func__, code);
    if (code_ret) *code_ret = code;
    return mapped;
}

void *clEnqueueMapImage(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_bitfield flags, const size_t *at,
                        const size_t *region, size_t *row, size_t *slice, WAITS, cl_int *code_ret) {
    if (blocking) sim_flush(queue);
    return below.clEnqueueMapImage(queue, mem, blocking, flags, at, region, row, slice, event_count, events, event, code_ret);
}
