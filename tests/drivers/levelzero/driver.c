/* The driver and its devices: start, settings, properties. */
#include "sim.h"

#ifndef SIMZE_NUMBER
#define SIMZE_NUMBER 0 /* of the driver, where a process has several */
#endif

sim_process sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
static sim_driver *driver;
static sim_device *devices[MAX_DEVICES];
static sim_device *tiles[MAX_DEVICES][MAX_TILES]; /* sub-devices */

/* ---- settings */
static bool is_set(const char *name, bool otherwise) {
    const char *text = getenv(name);
    return text && *text ? strcmp(text, "1") == 0 : otherwise;
}

void sim_settings(void) {
    const char *mode = getenv("SIMZE_MODE"), *fate = getenv("SIMZE_FD"), *count = getenv("SIMZE_DEVICES");
    const char *version = getenv("SIMZE_DRIVER_VERSION"), *api = getenv("SIMZE_API"), *platform = getenv("SIMZE_PLATFORM");
    const char *memory = getenv("SIMZE_MEMORY_TYPES"), *queues = getenv("SIMZE_QUEUES"), *copies = getenv("SIMZE_COPY_QUEUES");
    const char *exports = getenv("SIMZE_EXPORT_TYPES"), *owner = getenv("SIMZE_EXPORT_FD");
    const char *append = getenv("SIMZE_APPEND_US"), *controller = getenv("SIMZE_CONTROLLER"), *lag = getenv("SIMZE_LAG_US"),
               *entry = getenv("SIMZE_ENTRY_US"), *ip = getenv("SIMZE_IP_VERSION"), *zero = getenv("SIMZE_WAIT_FOR_0"),
               *parts = getenv("SIMZE_SUB_DEVICES");
    unsigned major = 1, minor = 12;
    if (mode && *mode && strcmp(mode, "intel") != 0 && strcmp(mode, "conforming") != 0) {
        fprintf(stderr, "simze: SIMZE_MODE=%s is neither conforming nor intel\n", mode);
        abort();
    }
    sim.intel = mode && strcmp(mode, "intel") == 0;
    sim.no_reset = is_set("SIMZE_NO_RESET", sim.intel);
    sim.host_functions = controller && strcmp(controller, "host-functions") == 0;
    sim.sticky = is_set("SIMZE_STICKY", sim.intel && !sim.host_functions);
    sim.no_wait_for_0 = zero && *zero ? strcmp(zero, "never") == 0 : sim.intel;
    if (zero && *zero && !sim.no_wait_for_0 && strcmp(zero, "met") != 0) sim_wrong_setting("WAIT_FOR_0", "is neither never nor met");
    sim.syncobjs = is_set("SIMZE_SYNCOBJS", false);
    sim.no_address = is_set("SIMZE_NO_ADDRESS", sim.intel);
    sim.no_table = is_set("SIMZE_NO_TABLE", false);
    sim.engines = is_set("SIMZE_ENGINES", sim.host_functions);
    sim.guard = is_set("SIMZE_GUARD", false);
#ifdef _WIN32
    sim.windows = true;
    (void)platform;
#else
    sim.windows = platform && strcmp(platform, "windows") == 0;
#endif
    sim.fd_fate = sim.intel ? FD_CLOSED : FD_ON_SUCCESS;
    if (fate && strcmp(fate, "open") == 0) sim.fd_fate = FD_OPEN;
    if (fate && strcmp(fate, "on-success") == 0) sim.fd_fate = FD_ON_SUCCESS;
    if (fate && strcmp(fate, "closed") == 0) sim.fd_fate = FD_CLOSED;
    sim.driver_version = version ? (uint32_t)strtoul(version, NULL, 0) : ZE_MAKE(1, 0);
    if (api && sscanf(api, "%u.%u", &major, &minor) != 2) major = 1, minor = 12;
    sim.api = ZE_MAKE(major, minor);
    /* Only memory of host can be imported, and it is not a dma-buf. NEO reports both types. */
    sim.memory_types = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD | (sim.intel ? ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF : 0);
    if (memory && *memory) sim.memory_types = (uint32_t)strtoul(memory, NULL, 0);
    sim.export_types = exports && *exports ? (uint32_t)strtoul(exports, NULL, 0) : sim.memory_types & 3u;
    sim.pool = is_set("SIMZE_POOL", sim.intel);
    sim.tiles = is_set("SIMZE_TILES", false);
    sim.keeps_exports = owner && *owner ? strcmp(owner, "driver") == 0 : sim.intel;
    if (owner && *owner && !sim.keeps_exports && strcmp(owner, "caller") != 0)
        sim_wrong_setting("EXPORT_FD", "is neither driver nor caller");
    unsigned architecture = 12, release = 55; /* of a DG2 */
    if (ip && *ip && sscanf(ip, "%u.%u", &architecture, &release) != 2) sim_wrong_setting("IP_VERSION", "is not like 20.1");
    sim.ip_version = architecture << 22 | release << 14;
    /* NEO: Xe2 and newer compress device memory, except Lunar Lake. */
    sim.compresses = sim.intel && architecture >= 20 && !(architecture == 20 && release == 4);
    sim.append_us = append && *append ? (uint32_t)strtoul(append, NULL, 0) : 0;
    sim.lag_us = lag && *lag ? (uint32_t)strtoul(lag, NULL, 0) : 0;
    sim.entry_us = entry && *entry ? (uint32_t)strtoul(entry, NULL, 0) : 0;
    sim.controller = controller && strcmp(controller, "fifo") == 0   ? CONTROLLER_FIFO
                     : controller && strcmp(controller, "lifo") == 0 ? CONTROLLER_LIFO
                                                                     : CONTROLLER_NONE;
    if (controller && *controller && !sim.controller && !sim.host_functions)
        sim_wrong_setting("CONTROLLER", "is neither fifo nor lifo nor host-functions");
    sim.images = is_set("SIMZE_IMAGES", false);
    sim.no_d3d11_fence = !is_set("SIMZE_D3D11_FENCE", true);
    sim.queues = queues && *queues ? (uint32_t)strtoul(queues, NULL, 0) : 4;
    if (sim.queues < 1 || sim.queues > MAX_DEVICES) sim.queues = 4;
    sim.copy_queues = copies && *copies ? (uint32_t)strtoul(copies, NULL, 0) : 2;
    if (sim.copy_queues > MAX_DEVICES) sim.copy_queues = 2;
    sim.sub_devices = parts && *parts ? (uint32_t)strtoul(parts, NULL, 0) : 0;
    if (sim.sub_devices > MAX_TILES) sim_wrong_setting("SUB_DEVICES", "is more than 4");
    sim.device_count = count && *count ? atoi(count) : 1;
    if (sim.device_count < 0 || sim.device_count > MAX_DEVICES) sim.device_count = 1;
}

/* ---- start */
static void start(void) {
    if (sim.initialised) return;
    driver = sim_new(SIM_DRIVER, sizeof *driver);
    for (int i = 0; i < sim.device_count; i++) {
        devices[i] = sim_new(SIM_DEVICE, sizeof **devices);
        devices[i]->number = i;
        for (uint32_t tile = 0; tile < sim.sub_devices; tile++) {
            tiles[i][tile] = sim_new(SIM_DEVICE, sizeof **devices);
            tiles[i][tile]->number = i;
            tiles[i][tile]->tile = tile + 1;
        }
    }
    sim.initialised = true;
}

ze_result_t zeInit(uint32_t flags) {
    CALL_AS(CALL_ANY, "flags=%u", flags);
    REFUSE_IF(flags & ~3u, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    REFUSE_IF(flags && !(flags & ZE_INIT_FLAG_GPU_ONLY), ZE_RESULT_ERROR_UNINITIALIZED);
    start();
    RETURN(ZE_RESULT_SUCCESS);
}

static ze_result_t give(uint32_t *count, void *out, void *const *found, uint32_t there) {
    if (!count) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > there) *count = there;
    for (uint32_t i = 0; out && i < *count; i++) ((void **)out)[i] = found[i];
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeInitDrivers(uint32_t *count, ze_driver_handle_t *out, ze_init_driver_type_desc_t *desc) {
    CALL_AS(CALL_ANY, "desc=%s", sim_hex(desc, sizeof *desc));
    NEEDS(count && desc);
    REFUSE_IF(desc->flags == 0, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    if (!(desc->flags & ZE_INIT_DRIVER_TYPE_FLAG_GPU)) {
        *count = 0;
        RETURN(ZE_RESULT_SUCCESS);
    }
    start();
    RETURN(give(count, out, (void *const *)&driver, 1));
}

ze_result_t zeDriverGet(uint32_t *count, ze_driver_handle_t *out) {
    CALL("%s", "");
    RETURN(give(count, out, (void *const *)&driver, 1));
}

ze_result_t zeDriverGetApiVersion(ze_driver_handle_t handle, uint32_t *out) {
    CALL("driver=%p", (void *)handle);
    sim_driver *found;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    NEEDS(out);
    *out = sim.api;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDriverGetProperties(ze_driver_handle_t handle, ze_driver_properties_t *out) {
    CALL("driver=%p", (void *)handle);
    sim_driver *found;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    NEEDS(out);
    memset(&out->uuid, 0, sizeof out->uuid);
    memcpy(out->uuid.id, "simulated-ze", 12);
    out->uuid.id[15] = SIMZE_NUMBER;
    out->driverVersion = sim.driver_version;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDriverGetExtensionProperties(ze_driver_handle_t handle, uint32_t *count,
                                           ze_driver_extension_properties_t *out) {
    CALL("driver=%p", (void *)handle);
    static const ze_driver_extension_properties_t all[] = {{"ZE_extension_external_semaphores", ZE_MAKE(1, 0)},
                                                           {"ZE_extension_external_memmap_sysmem", ZE_MAKE(1, 0)},
                                                           {"ZE_extension_device_luid", ZE_MAKE(1, 0)}};
    sim_driver *found;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    NEEDS(count);
    uint32_t there = sim.api >= ZE_MAKE(1, 12) ? (sim.windows ? 3 : 2) : 0;
    if (*count == 0 || *count > there) *count = there;
    if (out) memcpy(out, all, *count * sizeof *all);
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- devices */
ze_result_t zeDeviceGet(ze_driver_handle_t handle, uint32_t *count, ze_device_handle_t *out) {
    CALL("driver=%p", (void *)handle);
    sim_driver *found;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    RETURN(give(count, out, (void *const *)devices, (uint32_t)sim.device_count));
}

ze_result_t zeDeviceGetSubDevices(ze_device_handle_t handle, uint32_t *count, ze_device_handle_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    RETURN(give(count, out, (void *const *)tiles[device->number], device->tile ? 0 : sim.sub_devices));
}

/* NEO's layout: vendor, device, revision, PCI domain (16 bits each), bus, device, function, four reserved, the tile. */
static void uuid_of(const sim_device *device, ze_device_uuid_t *out) {
    const uint16_t ids[] = {0x8086, 0x51f0, SIMZE_NUMBER, 0};
    memset(out, 0, sizeof *out);
    memcpy(out->id, ids, sizeof ids);
    out->id[8] = (uint8_t)(3 + device->number);
    out->id[15] = (uint8_t)device->tile;
}

ze_result_t zeDeviceGetProperties(ze_device_handle_t handle, ze_device_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(out);
    for (ze_base_properties_t *each = out->pNext; each; each = each->pNext) {
        if (each->stype == ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT) ((ze_device_ip_version_ext_t *)each)->ipVersion = sim.ip_version;
        if (each->stype != ZE_STRUCTURE_TYPE_DEVICE_LUID_EXT_PROPERTIES) continue;
        if (!sim.windows) RETURN(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        ze_device_luid_ext_properties_t *luid = (ze_device_luid_ext_properties_t *)each;
        memcpy(luid->luid.id, "simluid", 7);
        luid->luid.id[7] = (uint8_t)(16 * SIMZE_NUMBER + device->number);
        luid->nodeMask = 1;
    }
    ze_device_properties_t made = {.stype = out->stype, .pNext = out->pNext};
    made.type = ZE_DEVICE_TYPE_GPU;
    made.vendorId = 0x8086;
    made.flags = device->tile ? 2 : 0; /* ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE */
    made.subdeviceId = device->tile ? device->tile - 1 : 0;
    made.deviceId = 0x51f0;
    made.coreClockRate = 1000;
    made.maxMemAllocSize = (uint64_t)1 << 30;
    made.maxHardwareContexts = 64;
    made.timerResolution = 1;
    made.timestampValidBits = made.kernelTimestampValidBits = 64;
    uuid_of(device, &made.uuid);
    snprintf(made.name, sizeof made.name, "Simulated Level Zero device %d of driver %d", device->number, SIMZE_NUMBER);
    *out = made;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t handle, uint32_t *count,
                                                   ze_command_queue_group_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(count);
    uint32_t groups = sim.copy_queues ? MAX_GROUPS : 1;
    if (*count == 0 || *count > groups) *count = groups;
    for (uint32_t i = 0; out && i < *count; i++) {
        out[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        if (i == 0) out[i].flags |= ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
        out[i].maxMemoryFillPatternSize = i == 0 ? MAX_PATTERN : 1;
        out[i].numQueues = i == 0 ? sim.queues : sim.copy_queues;
    }
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetMemoryProperties(ze_device_handle_t handle, uint32_t *count, ze_device_memory_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(count);
    *count = 1;
    if (out) {
        out->flags = out->maxClockRate = 0;
        out->maxBusWidth = 64;
        out->totalSize = (uint64_t)1 << 30;
        strcpy(out->name, "simulated");
    }
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetMemoryAccessProperties(ze_device_handle_t handle, ze_device_memory_access_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(out);
    out->hostAllocCapabilities = out->deviceAllocCapabilities = out->sharedSingleDeviceAllocCapabilities = 1;
    out->sharedCrossDeviceAllocCapabilities = out->sharedSystemAllocCapabilities = 0;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetImageProperties(ze_device_handle_t handle, ze_device_image_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(out);
    out->maxImageDims1D = out->maxImageDims2D = 16384;
    out->maxImageDims3D = 2048;
    out->maxImageBufferSize = (uint64_t)1 << 27;
    out->maxImageArraySlices = 2048;
    out->maxSamplers = 16;
    out->maxReadImageArgs = out->maxWriteImageArgs = 128;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetExternalMemoryProperties(ze_device_handle_t handle, ze_device_external_memory_properties_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(out);
    uint32_t types = sim.memory_types;
    if (sim.windows)
        types = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32 | 0x40 | ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE | (sim.intel ? 0 : 0x38);
    out->memoryAllocationImportTypes = types;
    out->memoryAllocationExportTypes = sim.windows ? 0 : sim.export_types;
    /* NEO reports no type, although zeImageCreate takes an fd. */
    out->imageImportTypes = sim.images ? types : 0;
    out->imageExportTypes = 0;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetStatus(ze_device_handle_t handle) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeDeviceGetRootDevice(ze_device_handle_t handle, ze_device_handle_t *out) {
    CALL("device=%p", (void *)handle);
    sim_device *device;
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(out);
    *out = NULL;
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- contexts */
ze_result_t zeContextCreateEx(ze_driver_handle_t handle, const ze_context_desc_t *desc, uint32_t count,
                              ze_device_handle_t *in, ze_context_handle_t *out) {
    CALL("driver=%p desc=%s devices=%u", (void *)handle, sim_hex(desc, sizeof *desc), count);
    sim_driver *found;
    sim_device *device;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    NEEDS(desc && out);
    REFUSE_IF(count && !in, ZE_RESULT_ERROR_INVALID_SIZE);
    for (uint32_t i = 0; i < count; i++) TRY(sim_get(in[i], SIM_DEVICE, &device));
    *out = sim_new(SIM_CONTEXT, sizeof **out);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeContextCreate(ze_driver_handle_t handle, const ze_context_desc_t *desc, ze_context_handle_t *out) {
    CALL("driver=%p desc=%s", (void *)handle, sim_hex(desc, sizeof *desc));
    sim_driver *found;
    TRY(sim_get(handle, SIM_DRIVER, &found));
    NEEDS(desc && out);
    *out = sim_new(SIM_CONTEXT, sizeof **out);
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeContextDestroy(ze_context_handle_t handle) {
    CALL("context=%p", (void *)handle);
    sim_context *context;
    TRY(sim_get(handle, SIM_CONTEXT, &context));
    if (context->users) sim_abort("this context is destroyed before what was made in it");
    context->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeContextGetStatus(ze_context_handle_t handle) {
    CALL("context=%p", (void *)handle);
    sim_context *context;
    TRY(sim_get(handle, SIM_CONTEXT, &context));
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- sleeping on the lock */
int64_t sim_deadline(uint64_t timeout_ns) {
    int64_t now = xsem_host_now_ns();
    return timeout_ns > (uint64_t)(INT64_MAX - now) ? INT64_MAX : now + (int64_t)timeout_ns;
}

bool sim_sleep(int64_t deadline_ns) {
    if (deadline_ns == INT64_MAX) {
        pthread_cond_wait(&sim.changed, &sim.lock);
        return true;
    }
    if (xsem_host_now_ns() >= deadline_ns) return false;
#ifdef _WIN32
    int64_t left_ms = (deadline_ns - xsem_host_now_ns() + 999999) / 1000000;
    SleepConditionVariableSRW(&sim.changed, &sim.lock, left_ms < 0 ? 0 : left_ms > INT32_MAX ? INT32_MAX : (DWORD)left_ms, 0);
#else
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    pthread_cond_timedwait(&sim.changed, &sim.lock, &until);
#endif
    return true;
}
