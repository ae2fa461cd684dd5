/* PoCL's CPU as a GPU that imports: extensions, handle types, UUID. */
#include "sim.h"

static const struct { const char *name; cl_uint version; } extensions[] = {
    {"cl_khr_semaphore", 0x00400000}, {"cl_khr_external_semaphore", 0x00400000},
    {"cl_khr_external_semaphore_opaque_fd", 0x00400000}, {"cl_khr_external_memory", 0x00400000},
    {"cl_khr_external_memory_opaque_fd", 0x00400000}, {"cl_khr_device_uuid", 0x00400000},
};
#define EXTENSIONS (sizeof extensions / sizeof *extensions)

cl_int sim_answer(const void *answer, size_t bytes, size_t size, void *value, size_t *size_ret) {
    if (value && size < bytes) return CL_INVALID_VALUE;
    if (value && bytes) memcpy(value, answer, bytes);
    if (size_ret) *size_ret = bytes;
    return CL_SUCCESS;
}

/* ---- platform and device */
bool sim_is_ours(cl_platform_id platform) {
    char name[128] = "";
    return platform && below.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
           strcmp(name, "Portable Computing Language") == 0;
}

int sim_device_number(cl_device_id device) {
    cl_platform_id platform = NULL;
    cl_device_id devices[MAX_DEVICES];
    cl_uint count = 0;
    if (!device || below.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) || !sim_is_ours(platform))
        return -1;
    if (below.clGetDeviceIDs(platform, 0xFFFFFFFF, MAX_DEVICES, devices, &count)) return -1;
    for (cl_uint i = 0; i < count && i < MAX_DEVICES; i++)
        if (devices[i] == device) return (int)i;
    return 0; /* a part of a device */
}

cl_uint sim_devices_of(cl_context context, cl_device_id *devices) {
    size_t bytes = 0;
    cl_device_id all[64];
    if (!context || below.clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof all, all, &bytes)) return 0;
    cl_uint count = (cl_uint)(bytes / sizeof *all);
    if (count > MAX_DEVICES) count = MAX_DEVICES;
    memcpy(devices, all, count * sizeof *all);
    return count;
}

const cl_properties *sim_device_list(const cl_properties *at, cl_context context, cl_device_id *out, cl_uint *count) {
    cl_device_id all[MAX_DEVICES];
    cl_uint of_context = sim_devices_of(context, all);
    for (*count = 0; *at; at++) {
        cl_device_id each = (cl_device_id)(uintptr_t)*at;
        bool found = false;
        for (cl_uint i = 0; i < of_context; i++) found = found || all[i] == each;
        if (!found || *count == MAX_DEVICES) return NULL;
        out[(*count)++] = each;
    }
    return at + 1;
}

/* Only the stand-in is visible, without the other drivers of this machine. */
cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *platforms, cl_uint *count_ret) {
    cl_platform_id all[64];
    cl_uint count = 0, ours = 0;
    if ((room == 0) != !platforms || (!platforms && !count_ret)) return CL_INVALID_VALUE;
    cl_int code = below.clGetPlatformIDs(64, all, &count);
    if (code) return code;
    for (cl_uint i = 0; i < count && i < 64; i++) {
        if (!sim_is_ours(all[i])) continue;
        if (ours < room) platforms[ours] = all[i];
        ours++;
    }
    if (count_ret) *count_ret = ours;
    return CL_SUCCESS;
}

/* ---- extensions */
/* The text of the next layer, then the additions. */
static cl_int added_names(const char *said, size_t size, void *value, size_t *size_ret) {
    char text[8192];
    int length = snprintf(text, sizeof text, "%s", said);
    while (length > 0 && text[length - 1] == ' ') text[--length] = 0;
    for (size_t i = 0; i < EXTENSIONS; i++)
        if (!sim_missing(extensions[i].name))
            length += snprintf(text + length, sizeof text - (size_t)length, "%s%s", length ? " " : "", extensions[i].name);
    return sim_answer(text, (size_t)length + 1, size, value, size_ret);
}

static cl_int added_versions(const void *said, size_t bytes, size_t size, void *value, size_t *size_ret) {
    cl_name_version rows[128];
    memset(rows, 0, sizeof rows);
    memcpy(rows, said, bytes);
    size_t count = bytes / sizeof *rows;
    for (size_t i = 0; i < EXTENSIONS; i++)
        if (!sim_missing(extensions[i].name)) {
            rows[count].version = extensions[i].version;
            snprintf(rows[count++].name, sizeof rows->name, "%s", extensions[i].name);
        }
    return sim_answer(rows, count * sizeof *rows, size, value, size_ret);
}

/* Queries with the same answer for a platform and a device. */
static cl_int types_of(cl_uint name, size_t size, void *value, size_t *size_ret, bool *known) {
    static const cl_uint binary = CL_SEMAPHORE_TYPE_BINARY_KHR, semaphore = CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR,
                         memory = CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR;
    const char *of = "cl_khr_semaphore";
    const cl_uint *answer = &binary;
    size_t bytes = sizeof *answer;
    switch (name) {
        case CL_PLATFORM_SEMAPHORE_TYPES_KHR:
        case CL_DEVICE_SEMAPHORE_TYPES_KHR: break;
        case CL_PLATFORM_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR:
        case CL_DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR: answer = &semaphore, of = "cl_khr_external_semaphore"; break;
        case CL_PLATFORM_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR:
        case CL_DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR: bytes = 0, of = "cl_khr_external_semaphore"; break; /* measured */
        case CL_PLATFORM_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR:
        case CL_DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES_KHR: answer = &memory, of = "cl_khr_external_memory"; break;
        default: *known = false; return CL_SUCCESS;
    }
    if (sim_missing(of)) return CL_INVALID_VALUE;
    if (answer == &semaphore && sim_missing("cl_khr_external_semaphore_opaque_fd")) bytes = 0;
    if (answer == &memory && sim_missing("cl_khr_external_memory_opaque_fd")) bytes = 0;
    return sim_answer(answer, bytes, size, value, size_ret);
}

/* ---- queries */
cl_int clGetPlatformInfo(cl_platform_id platform, cl_uint name, size_t size, void *value, size_t *size_ret) {
    char said[8192];
    size_t bytes = 0;
    bool known = true;
    if (!sim_is_ours(platform)) return below.clGetPlatformInfo(platform, name, size, value, size_ret);
    if (name == CL_PLATFORM_EXTENSIONS || name == CL_PLATFORM_EXTENSIONS_WITH_VERSION) {
        cl_int code = below.clGetPlatformInfo(platform, name, sizeof said, said, &bytes);
        if (code) return code;
        return name == CL_PLATFORM_EXTENSIONS ? added_names(said, size, value, size_ret)
                                              : added_versions(said, bytes, size, value, size_ret);
    }
    cl_int code = types_of(name, size, value, size_ret, &known);
    return known ? code : below.clGetPlatformInfo(platform, name, size, value, size_ret);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_uint name, size_t size, void *value, size_t *size_ret) {
    char said[8192];
    size_t bytes = 0;
    bool known = true;
    int number = sim_device_number(device);
    if (number < 0) return below.clGetDeviceInfo(device, name, size, value, size_ret);
    if (name == CL_DEVICE_EXTENSIONS || name == CL_DEVICE_EXTENSIONS_WITH_VERSION) {
        cl_int code = below.clGetDeviceInfo(device, name, sizeof said, said, &bytes);
        if (code) return code;
        return name == CL_DEVICE_EXTENSIONS ? added_names(said, size, value, size_ret)
                                            : added_versions(said, bytes, size, value, size_ret);
    }
    if (name == CL_DEVICE_TYPE) {
        const cl_bitfield type = CL_DEVICE_TYPE_GPU | (number == 0 ? CL_DEVICE_TYPE_DEFAULT : 0);
        return sim_answer(&type, sizeof type, size, value, size_ret);
    }
    if (name == CL_DEVICE_VENDOR_ID) {
        const cl_uint nvidia = 0x10DE; /* it behaves as measured on NVIDIA's driver, and identifies as it */
        return sim_answer(&nvidia, sizeof nvidia, size, value, size_ret);
    }
    if (name == CL_DEVICE_NAME) {
        int length = snprintf(said, sizeof said, "simulated OpenCL GPU %d", number);
        said[length] = 0;
        return sim_answer(said, (size_t)length + 1, size, value, size_ret);
    }
    if (name >= CL_DEVICE_UUID_KHR && name <= CL_DEVICE_NODE_MASK_KHR) {
        if (sim_missing("cl_khr_device_uuid")) return CL_INVALID_VALUE;
        unsigned char uuid[16] = "simulated-cl";
        const cl_uint none = 0;
        uuid[15] = (unsigned char)(number + 1);
        if (name == CL_DRIVER_UUID_KHR) memcpy(uuid, "simulated-driver", sizeof uuid);
        if (name == CL_DEVICE_UUID_KHR || name == CL_DRIVER_UUID_KHR) return sim_answer(uuid, sizeof uuid, size, value, size_ret);
        if (name == CL_DEVICE_LUID_KHR) return sim_answer("\0\0\0\0\0\0\0", 8, size, value, size_ret);
        return sim_answer(&none, sizeof none, size, value, size_ret);
    }
    cl_int code = types_of(name, size, value, size_ret, &known);
    return known ? code : below.clGetDeviceInfo(device, name, size, value, size_ret);
}

/* ---- its CPU is listed as a GPU, not as a CPU */
static bool look_for(cl_bitfield *type) {
    if (*type == 0xFFFFFFFF || *type & ~0x1Full) return true;
    if (!(*type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT))) return *type == 0;
    if (*type & CL_DEVICE_TYPE_GPU) *type = (*type & ~(cl_bitfield)CL_DEVICE_TYPE_GPU) | CL_DEVICE_TYPE_CPU;
    return true;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_bitfield type, cl_uint count, cl_device_id *devices, cl_uint *count_ret) {
    if (sim_is_ours(platform) && !look_for(&type)) {
        if (count_ret) *count_ret = 0;
        return CL_DEVICE_NOT_FOUND;
    }
    return below.clGetDeviceIDs(platform, type, count, devices, count_ret);
}

cl_context clCreateContextFromType(const intptr_t *properties, cl_bitfield type,
                                   void (*notify)(const char *, const void *, size_t, void *), void *user_data, cl_int *code) {
    bool ours = !properties; /* PoCL is the first platform */
    for (const intptr_t *each = properties; each && *each; each += 2)
        if (each[0] == CL_CONTEXT_PLATFORM) ours = sim_is_ours((cl_platform_id)each[1]);
    if (ours && !look_for(&type)) {
        if (code) *code = CL_DEVICE_NOT_FOUND;
        return NULL;
    }
    return below.clCreateContextFromType(properties, type, notify, user_data, code);
}
