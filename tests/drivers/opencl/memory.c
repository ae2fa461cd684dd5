/* Buffers over memory of the host device. PoCL works in place on the given memory, so its writes are visible there. */
#include "sim.h"

/* ---- imported memory */
typedef struct buffer {
    struct buffer *next;
    cl_mem mem;
    void *map;
    size_t size;
    cl_properties properties[MAX_DEVICES + 8];
    size_t property_count;
    cl_bitfield flags;
    bool acquired;
    int kept_fd;
} buffer;

static buffer *buffers;

/* With the lock held. */
static buffer *buffer_of(cl_mem mem) {
    buffer *found = buffers;
    while (found && found->mem != mem) found = found->next;
    return found;
}

/* PoCL's last command on it is done. */
static void when_destroyed(cl_mem mem, void *map) {
    pthread_mutex_lock(&sim.lock);
    buffer **at = &buffers;
    while (*at && ((*at)->mem != mem || (*at)->map != map)) at = &(*at)->next;
    buffer *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&sim.lock);
    if (!found) return;
    munmap(found->map, found->size);
    if (found->kept_fd >= 0) close(found->kept_fd);
    free(found);
}

/* ---- import */
typedef struct { bool has_fd; int fd; } wanted;

static cl_int read_properties(const cl_properties *at, cl_context context, wanted *out, size_t *count) {
    const cl_properties *first = at;
    cl_device_id devices[MAX_DEVICES];
    cl_uint device_count;
    while (*at) {
        cl_properties name = *at++;
        if ((size_t)(at - first) > 6) return CL_INVALID_PROPERTY;
        if (name == CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR && !out->has_fd) {
            out->has_fd = true;
            out->fd = (int)*at++;
        } else if (name == CL_DEVICE_HANDLE_LIST_KHR) {
            at = sim_device_list(at, context, devices, &device_count);
            if (!at || device_count == 0) return CL_INVALID_DEVICE;
        } else {
            return CL_INVALID_PROPERTY; /* measured for a dma-buf */
        }
    }
    *count = (size_t)(at - first) + 1;
    return CL_SUCCESS;
}

static cl_int map(int fd, size_t size, void **out) {
    struct stat status;
    if (size == 0) return CL_INVALID_BUFFER_SIZE; /* this and the next two are measured */
    if (fd < 0 || xsem_host_recognise(fd) != XSEM_HOST_MEMORY) return UNKNOWN_FD;
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size < size) return TOO_BIG;
    *out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return *out == MAP_FAILED ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
}

static cl_int create(cl_context context, const cl_properties *properties, const wanted *want, size_t count, cl_bitfield flags,
                     size_t size, void *host, cl_mem *out) {
    void *address;
    cl_int code = CL_SUCCESS;
    if (host || flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) return CL_INVALID_VALUE;
    code = map(want->fd, size, &address);
    if (code) return code;
    cl_mem mem = below.clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, size, address, &code);
    if (code) {
        munmap(address, size);
        return code;
    }
    buffer *made = calloc(1, sizeof *made);
    *made = (buffer){.mem = mem, .map = address, .size = size, .property_count = count, .flags = flags,
                     .kept_fd = sim.fd_kept ? want->fd : -1};
    memcpy(made->properties, properties, count * sizeof *properties);
    pthread_mutex_lock(&sim.lock);
    made->next = buffers;
    buffers = made;
    pthread_mutex_unlock(&sim.lock);
    below.clSetMemObjectDestructorCallback(mem, when_destroyed, address);
    if (sim.fd_taken && want->fd >= 0) close(want->fd);
    *out = mem;
    return CL_SUCCESS;
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_properties *properties, cl_bitfield flags, size_t size, void *host,
                                    cl_int *code_ret) {
    cl_device_id devices[MAX_DEVICES];
    cl_mem made = NULL;
    wanted want = {.fd = -1};
    size_t count = 0, length = 0;
    cl_uint device_count = sim_devices_of(context, devices);
    if (!properties || !*properties || !device_count || sim_device_number(devices[0]) < 0)
        return below.clCreateBufferWithProperties(context, properties, flags, size, host, code_ret);
    while (length < 16 && properties[length]) length++;
    cl_int code = sim_enter(__func__, "context=%p properties=%s flags=0x%llx size=%zu", (void *)context,
                            sim_hex(properties, length * sizeof *properties), (unsigned long long)flags, size);
    if (!code) code = sim_missing("cl_khr_external_memory") ? CL_INVALID_PROPERTY : read_properties(properties, context, &want, &count);
    if (!code && !want.has_fd) return below.clCreateBufferWithProperties(context, NULL, flags, size, host, code_ret);
    if (!code) code = create(context, properties, &want, count, flags, size, host, &made);
    code = sim_leave(__func__, code);
    if (code_ret) *code_ret = code;
    return code > 0 && !made ? (cl_mem)sim_error_pointer() : made; /* measured */
}

cl_int clReleaseMemObject(cl_mem mem) {
    if ((void *)mem == sim_error_pointer()) {
        sim_enter(__func__, "mem=%p", (void *)mem);
        sim_abort("this pointer came with an error and is not a memory object");
    }
    return below.clReleaseMemObject(mem);
}

cl_int clGetMemObjectInfo(cl_mem mem, cl_uint name, size_t size, void *value, size_t *size_ret) {
    void *const none = NULL;
    pthread_mutex_lock(&sim.lock);
    buffer *found = buffer_of(mem);
    buffer copy = found ? *found : (buffer){.mem = NULL};
    pthread_mutex_unlock(&sim.lock);
    if (found && name == CL_MEM_FLAGS) return sim_answer(&copy.flags, sizeof copy.flags, size, value, size_ret);
    if (found && name == CL_MEM_HOST_PTR) return sim_answer(&none, sizeof none, size, value, size_ret);
    if (found && name == CL_MEM_PROPERTIES)
        return sim_answer(copy.properties, copy.property_count * sizeof *copy.properties, size, value, size_ret);
    return below.clGetMemObjectInfo(mem, name, size, value, size_ret);
}

/* ---- use: a driver may show it without an acquire (NVIDIA's does: measured); the specification does not guarantee it */
void sim_used(cl_mem mem) {
    if (!mem) return;
    if ((void *)mem == sim_error_pointer()) sim_abort("this pointer came with an error and is not a memory object");
    pthread_mutex_lock(&sim.lock);
    buffer *found = buffer_of(mem);
    bool unacquired = found && !found->acquired;
    pthread_mutex_unlock(&sim.lock);
    if (!unacquired) return;
    atomic_fetch_add(&sim_counted->unacquired, 1);
    sim_note("# mem=%p is used and not acquired", (void *)mem);
}

/* ---- acquire, release: no action for memory that both sides see; only their order in the queue matters */
static cl_int enqueue(bool acquired, cl_command_queue queue, cl_uint count, const cl_mem *mems, cl_uint event_count,
                      const cl_event *events, cl_event *event) {
    cl_context context = NULL, of_mem = NULL;
    if (!queue || below.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL)) return CL_INVALID_COMMAND_QUEUE;
    if (!count != !mems) return CL_INVALID_VALUE;
    if (!event_count != !events) return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < count; i++) {
        if ((void *)mems[i] == sim_error_pointer()) sim_abort("this pointer came with an error and is not a memory object");
        if (!mems[i] || below.clGetMemObjectInfo(mems[i], CL_MEM_CONTEXT, sizeof of_mem, &of_mem, NULL)) return CL_INVALID_MEM_OBJECT;
        if (of_mem != context) return CL_INVALID_CONTEXT;
        pthread_mutex_lock(&sim.lock);
        buffer *found = buffer_of(mems[i]);
        if (found) found->acquired = acquired;
        pthread_mutex_unlock(&sim.lock);
        if (!found) return CL_INVALID_MEM_OBJECT;
    }
    return below.clEnqueueMarkerWithWaitList(queue, event_count, events, event);
}

cl_int clEnqueueAcquireExternalMemObjectsKHR(cl_command_queue queue, cl_uint count, const cl_mem *mems, cl_uint event_count,
                                             const cl_event *events, cl_event *event) {
    CALL("queue=%p count=%u mem=%p events=%u", (void *)queue, count, count && mems ? (void *)*mems : NULL, event_count);
    RETURN(enqueue(true, queue, count, mems, event_count, events, event));
}

cl_int clEnqueueReleaseExternalMemObjectsKHR(cl_command_queue queue, cl_uint count, const cl_mem *mems, cl_uint event_count,
                                             const cl_event *events, cl_event *event) {
    CALL("queue=%p count=%u mem=%p events=%u", (void *)queue, count, count && mems ? (void *)*mems : NULL, event_count);
    RETURN(enqueue(false, queue, count, mems, event_count, events, event));
}
