/* Start, versions, names of errors, devices. */
#include "sim.h"

#include <ctype.h>

sim_process sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .next_id = 1};
__thread sim_thread sim_self;

static int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

#ifndef _WIN32
/* ---- fork: calls in the child fail, and do not wait for missing threads */
static void before_fork(void) { pthread_mutex_lock(&sim.lock); }
static void after_fork(void) { pthread_mutex_unlock(&sim.lock); }
static void in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t quiet = PTHREAD_COND_INITIALIZER;
    sim.lock = fresh;
    sim.changed = quiet;
    sim.forked = sim.initialised;
}
#endif

__attribute__((constructor)) static void configure(void) {
    const char *platform = getenv("SIMCUDA_PLATFORM");
#ifdef _WIN32
    sim.windows = true;
#else
    sim.windows = platform && strcmp(platform, "windows") == 0;
#endif
    sim.tegra = platform && strcmp(platform, "tegra") == 0;
    sim.guard = number_of("SIMCUDA_GUARD", 0) != 0;
    sim.version = number_of("SIMCUDA_VERSION", 13000);
    sim.device_count = number_of("SIMCUDA_DEVICES", 1);
    if (sim.device_count < 0 || sim.device_count > MAX_DEVICES) {
        fprintf(stderr, "simcuda: SIMCUDA_DEVICES is 0 to %d\n", MAX_DEVICES);
        abort();
    }
#ifdef _WIN32
    sim_hide_newer();
#else
    pthread_atfork(before_fork, after_fork, in_child);
#endif
}

/* 1 to 32 (documented); 0 and no number: 8; others: 32 or 31 (measured). */
static int connections(void) {
    int asked = number_of("CUDA_DEVICE_MAX_CONNECTIONS", 0);
    return !asked ? 8 : asked < 1 ? 32 : asked > 32 ? 31 : asked;
}

EXPORT CUresult cuInit(unsigned flags) {
    CALL_AS(CALL_ANY, "flags=%u", flags);
    REFUSE_IF(flags, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(sim.forked, CUDA_ERROR_NOT_INITIALIZED);
    REFUSE_IF(sim.device_count == 0, CUDA_ERROR_NO_DEVICE);
    if (!sim.initialised) sim.connections = connections();
    sim.initialised = true;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    CALL_AS(CALL_ANY, "%s", "");
    REFUSE_IF(!version, CUDA_ERROR_INVALID_VALUE);
    *version = sim.version;
    RETURN(CUDA_SUCCESS);
}

/* The default of the driver on Linux since CUDA 12.2, or the setting of the application. */
EXPORT CUresult cuModuleGetLoadingMode(int *mode) {
    CALL_AS(CALL_ANY, "%s", "");
    REFUSE_IF(!mode, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!sim.initialised, CUDA_ERROR_NOT_INITIALIZED);
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    *mode = wanted && !strcmp(wanted, "EAGER") ? 1 : 2;
    RETURN(CUDA_SUCCESS);
}

/* ---- errors */
static const struct { const char *name; int code; } names[] = {
#define CODE(name, number) {#name, number},
#include "codes.def"
#undef CODE
};

static int name_of(CUresult code) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return (int)i;
    return -1;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    int at = name_of(code);
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = at < 0 ? NULL : names[at].name;
    return at < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    static char texts[sizeof names / sizeof *names][64];
    int at = name_of(code);
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    if (at < 0) return CUDA_ERROR_INVALID_VALUE;
    const char *name = names[at].name + (strncmp(names[at].name, "CUDA_ERROR_", 11) == 0 ? 11 : 5);
    for (int i = 0; i < 63; i++) {
        texts[at][i] = name[i] == '_' ? ' ' : (char)tolower((unsigned char)name[i]);
        if (!name[i]) break;
    }
    *text = texts[at];
    return CUDA_SUCCESS;
}

/* ---- devices */
#define CHECK_DEVICE(device) REFUSE_IF((device) < 0 || (device) >= sim.device_count, CUDA_ERROR_INVALID_DEVICE)

EXPORT CUresult cuDeviceGetCount(int *count) {
    CALL("%s", "");
    REFUSE_IF(!count, CUDA_ERROR_INVALID_VALUE);
    *count = sim.device_count;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CALL("ordinal=%d", ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(ordinal);
    *device = ordinal;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!name || length <= 0, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    snprintf(name, (size_t)length, "Stand-in for CUDA %d", device);
    RETURN(CUDA_SUCCESS);
}

static void uuid_of(CUuuid *uuid, CUdevice device) {
    memcpy(uuid->bytes, "simcuda\0\xc0\xda\x5e\x11", 12);
    memset(uuid->bytes + 12, 0, 3);
    uuid->bytes[15] = (char)(device + 1);
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!uuid, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    uuid_of(uuid, device);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!uuid, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    uuid_of(uuid, device);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned *node_mask, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!luid || !node_mask, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    REFUSE_IF(!sim.windows, CUDA_ERROR_NOT_SUPPORTED); /* measured on Linux */
    /* A LUID is a 64-bit counter since the start of the system, so most of its bytes are zero. */
    const char counter[8] = {(char)0xf4, 3, (char)(device + 1)};
    memcpy(luid, counter, sizeof counter);
    *node_mask = 1;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!bytes, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    *bytes = (size_t)1 << 30;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    CALL("dev=%d", device);
    REFUSE_IF(!text || length <= 0, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
    RETURN(CUDA_SUCCESS);
}

/* SIMCUDA_ATTRIBUTES=114:0,35:1 */
bool sim_told(int attribute, int *value) {
    const char *text = getenv("SIMCUDA_ATTRIBUTES");
    while (text && *text) {
        int which, told_value, used = 0;
        if (sscanf(text, "%d:%d%n", &which, &told_value, &used) != 2) break;
        if (which == attribute) {
            *value = told_value;
            return true;
        }
        text += used;
        if (*text == ',') text++;
    }
    return false;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CALL("attribute=%d dev=%d", attribute, device);
    REFUSE_IF(!value || attribute < 1 || attribute > 160, CUDA_ERROR_INVALID_VALUE);
    CHECK_DEVICE(device);
    /* An older driver does not know a newer attribute. */
    REFUSE_IF((attribute >= 102 && sim.version < 10020) || (attribute >= 114 && sim.version < 11020) ||
                  (attribute >= 124 && sim.version < 11070),
              CUDA_ERROR_INVALID_VALUE);
    if (sim_told(attribute, value)) RETURN(CUDA_SUCCESS);
    switch (attribute) {
        case 19: /* CAN_MAP_HOST_MEMORY */
        case 41: /* UNIFIED_ADDRESSING */
        case 91: /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
        case 99: /* HOST_REGISTER_SUPPORTED */
        case 113: /* READ_ONLY_HOST_REGISTER_SUPPORTED */
        case 114: /* TIMELINE_SEMAPHORE_INTEROP_SUPPORTED */
        case 122: /* CAN_USE_64_BIT_STREAM_MEM_OPS */
            *value = 1;
            break;
        case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
            *value = 1;
            break;
        case 103: /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
        case 124: /* DMA_BUF_SUPPORTED */
            *value = !sim.windows;
            break;
        case 104: /* HANDLE_TYPE_WIN32_HANDLE_SUPPORTED */
        case 105: /* HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED */
            *value = sim.windows;
            break;
        case 16: *value = 132; break; /* MULTIPROCESSOR_COUNT */
        case 33: *value = device + 1; break; /* PCI_BUS_ID */
        case 40: *value = 3; break; /* ASYNC_ENGINE_COUNT */
        case 18: *value = sim.tegra; break; /* INTEGRATED */
        case 75: *value = sim.tegra ? 11 : 9; break; /* COMPUTE_CAPABILITY_MAJOR */
        default: *value = 0;
    }
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetNvSciSyncAttributes(void *list, CUdevice device, int flags) {
    CALL("list=%p dev=%d flags=%d", list, device, flags);
    REFUSE_IF(!list, CUDA_ERROR_INVALID_HANDLE); /* measured */
    CHECK_DEVICE(device);
    REFUSE_IF(flags < 1 || flags > 3, CUDA_ERROR_INVALID_VALUE); /* measured */
    REFUSE_IF(!sim.tegra, CUDA_ERROR_NOT_SUPPORTED);             /* measured */
    /* In place of an NvSciSyncAttrList: the required permission, and the UUID of the GPU. */
    struct { uint64_t permission; CUuuid gpu; } *attributes = list;
    REFUSE_IF(attributes->permission, CUDA_ERROR_INVALID_VALUE);
    attributes->permission = (uint64_t)flags;
    uuid_of(&attributes->gpu, device);
    RETURN(CUDA_SUCCESS);
}
