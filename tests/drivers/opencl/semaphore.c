/* Semaphores: imported objects of the host device, and eventfds of the layer for other semaphores. */
#include "sim.h"

/* ---- the pointer of an error */
static struct { void *dispatch; char rest[256]; } error_object;

void *sim_error_pointer(void) { return &error_object; }

/* ---- handles */
cl_int sim_semaphore_of(cl_semaphore_khr handle, sim_semaphore **out) {
    if ((void *)handle == &error_object) sim_abort("this pointer came with an error and is not a semaphore");
    pthread_mutex_lock(&sim.lock);
    sim_semaphore *found = sim_known(handle, SIM_SEMAPHORE);
    bool alive = found && found->references > 0;
    pthread_mutex_unlock(&sim.lock);
    if (!found) return CL_INVALID_SEMAPHORE_KHR;
    if (!alive) sim_abort("this semaphore was released (a real driver uses freed memory here)");
    *out = found;
    return CL_SUCCESS;
}

/* ---- import */
/* The fd decides, not the type: the driver uses the fd of a timeline as a binary semaphore (measured). */
static cl_int take(sim_semaphore *semaphore, int fd) {
    if (!sim_payload_take(&semaphore->payload, fd)) return UNKNOWN_FD;
    if (sim.fd_taken) close(fd);
    if (sim.fd_kept) semaphore->kept_fd = fd;
    return CL_SUCCESS;
}

typedef struct { cl_uint type; bool has_fd; int fd; cl_device_id devices[MAX_DEVICES]; cl_uint device_count; } wanted;

/* "the same property name is specified more than once": each has a bit. */
static cl_int read_properties(const cl_properties *at, cl_context context, wanted *out, size_t *count) {
    const cl_properties *first = at;
    unsigned seen = 0, bit;
    while (*at) {
        cl_properties name = *at++;
        switch (name) {
            case CL_SEMAPHORE_TYPE_KHR:
                bit = 1;
                out->type = (cl_uint)*at++;
                if (out->type != CL_SEMAPHORE_TYPE_BINARY_KHR) return CL_INVALID_PROPERTY;
                break;
            case CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR:
                bit = 2;
                if (!*at) return CL_INVALID_PROPERTY; /* measured: 0 ends the list, although it is a valid fd */
                out->has_fd = true;
                out->fd = (int)*at++;
                break;
            case CL_DEVICE_HANDLE_LIST_KHR: /* its first name */
            case CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR:
                bit = 4;
                at = sim_device_list(at, context, out->devices, &out->device_count);
                if (!at || out->device_count != 1) return CL_INVALID_DEVICE;
                break;
            default:
                /* Other handle types. Unknown properties and exports (measured) give another code. */
                return name > CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR && name <= CL_SEMAPHORE_HANDLE_D3D12_FENCE_KHR
                           ? CL_INVALID_VALUE : CL_INVALID_PROPERTY;
        }
        if (seen & bit || (size_t)(at - first) > sizeof ((sim_semaphore *)0)->properties / sizeof *at - 1)
            return CL_INVALID_PROPERTY;
        seen |= bit;
    }
    *count = (size_t)(at - first) + 1;
    return seen & 1 ? CL_SUCCESS : CL_INVALID_VALUE;
}

static cl_int create(cl_context context, const cl_properties *properties, sim_semaphore **out) {
    cl_device_id all[MAX_DEVICES];
    cl_uint of_context = sim_devices_of(context, all);
    wanted want = {.fd = -1};
    sim_semaphore made = {.payload = SIM_NO_PAYLOAD, .kept_fd = -1, .context = context, .references = 1};
    if (!of_context) return CL_INVALID_CONTEXT;
    if (!properties) return CL_INVALID_VALUE;
    cl_int code = read_properties(properties, context, &want, &made.property_count);
    if (code) return code;
    if (of_context > 1 && !want.device_count) return CL_INVALID_PROPERTY;
    made.device = want.device_count ? want.devices[0] : all[0];
    if (want.has_fd && want.fd < 0) return CL_INVALID_VALUE; /* measured */
    if (want.has_fd) code = take(&made, want.fd);
    else made.payload.binary = xsem_host_binary_create();
    if (code) return code;
    memcpy(made.properties, properties, made.property_count * sizeof *properties);
    below.clRetainContext(context);
    pthread_mutex_lock(&sim.lock);
    sim_semaphore *semaphore = sim_new(SIM_SEMAPHORE, sizeof *semaphore);
    made.object = semaphore->object;
    *semaphore = made;
    pthread_mutex_unlock(&sim.lock);
    *out = semaphore;
    return CL_SUCCESS;
}

cl_semaphore_khr clCreateSemaphoreWithPropertiesKHR(cl_context context, const cl_properties *properties, cl_int *code_ret) {
    size_t count = 0;
    while (properties && count < 16 && properties[count]) count++;
    sim_semaphore *made = NULL;
    cl_int code = sim_enter(__func__, "context=%p properties=%s", (void *)context, sim_hex(properties, count * sizeof *properties));
    if (!code) code = create(context, properties, &made);
    code = sim_leave(__func__, code);
    if (code_ret) *code_ret = code;
    /* Errors without an OpenCL code also return a pointer (measured for memory). */
    return code > 0 && !made ? sim_error_pointer() : (cl_semaphore_khr)made;
}

/* ---- references */
cl_int clRetainSemaphoreKHR(cl_semaphore_khr handle) {
    CALL("semaphore=%p", (void *)handle);
    sim_semaphore *semaphore;
    cl_int code = sim_semaphore_of(handle, &semaphore);
    if (code) RETURN(code);
    pthread_mutex_lock(&sim.lock);
    semaphore->references++;
    pthread_mutex_unlock(&sim.lock);
    RETURN(CL_SUCCESS);
}

static void end(sim_semaphore *semaphore) {
    semaphore->object.alive = false;
    sim_payload_close(&semaphore->payload);
    if (semaphore->kept_fd >= 0) close(semaphore->kept_fd);
}

void sim_semaphore_done(sim_semaphore *semaphore) {
    if (--semaphore->queued == 0 && semaphore->references == 0 && semaphore->object.alive) end(semaphore);
}

cl_int clReleaseSemaphoreKHR(cl_semaphore_khr handle) {
    CALL("semaphore=%p", (void *)handle);
    sim_semaphore *semaphore;
    cl_int code = sim_semaphore_of(handle, &semaphore);
    if (code) RETURN(code);
    if (semaphore->queued) sim_end_failed(semaphore);
    pthread_mutex_lock(&sim.lock);
    bool last = --semaphore->references == 0, queued = semaphore->queued > 0;
    if (last && !queued) end(semaphore);
    pthread_mutex_unlock(&sim.lock);
    if (last && queued && !sim.deferred_release) sim_abort("this semaphore is released while its work is queued");
    if (last) below.clReleaseContext(semaphore->context);
    RETURN(CL_SUCCESS);
}

/* ---- queries */
cl_int clGetSemaphoreInfoKHR(cl_semaphore_khr handle, cl_uint name, size_t size, void *value, size_t *size_ret) {
    CALL("semaphore=%p name=0x%x", (void *)handle, name);
    sim_semaphore *semaphore;
    cl_int code = sim_semaphore_of(handle, &semaphore);
    if (code) RETURN(code);
    const cl_uint type = CL_SEMAPHORE_TYPE_BINARY_KHR;
    const cl_bool exportable = 0;
    cl_ulong payload = 0;
    switch (name) {
        case CL_SEMAPHORE_CONTEXT_KHR:
            RETURN(sim_answer(&semaphore->context, sizeof semaphore->context, size, value, size_ret));
        case CL_SEMAPHORE_REFERENCE_COUNT_KHR:
            RETURN(sim_answer(&semaphore->references, sizeof semaphore->references, size, value, size_ret));
        case CL_SEMAPHORE_PROPERTIES_KHR:
            RETURN(sim_answer(semaphore->properties, semaphore->property_count * sizeof *semaphore->properties, size, value, size_ret));
        case CL_SEMAPHORE_TYPE_KHR: RETURN(sim_answer(&type, sizeof type, size, value, size_ret));
        case CL_DEVICE_HANDLE_LIST_KHR:
        case CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR:
            RETURN(sim_answer(&semaphore->device, sizeof semaphore->device, size, value, size_ret));
        case CL_SEMAPHORE_EXPORTABLE_KHR: RETURN(sim_answer(&exportable, sizeof exportable, size, value, size_ret));
        case CL_SEMAPHORE_PAYLOAD_KHR:
            if (semaphore->payload.timeline) {
                payload = xsem_host_timeline_value(semaphore->payload.timeline);
            } else {
                struct pollfd poller = {semaphore->payload.binary, POLLIN, 0};
                payload = poll(&poller, 1, 0) == 1 && (poller.revents & POLLIN);
            }
            RETURN(sim_answer(&payload, sizeof payload, size, value, size_ret));
        default: RETURN(CL_INVALID_VALUE);
    }
}

/* No type can be exported. */
cl_int clGetSemaphoreHandleForTypeKHR(cl_semaphore_khr handle, cl_device_id device, cl_uint type, size_t size, void *value,
                                      size_t *size_ret) {
    CALL("semaphore=%p device=%p type=0x%x size=%zu", (void *)handle, (void *)device, type, size);
    (void)value, (void)size_ret;
    sim_semaphore *semaphore;
    cl_int code = sim_semaphore_of(handle, &semaphore);
    RETURN(code ? code : sim_device_number(device) < 0 ? CL_INVALID_DEVICE : CL_INVALID_VALUE);
}
