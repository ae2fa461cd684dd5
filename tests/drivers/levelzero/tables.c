/* The function tables for the loader. A member is written only if the requested version has it. */
#include "sim.h"

#ifndef SIMZE_NUMBER
#define SIMZE_NUMBER 0
#endif

/* Only for their addresses. */
#define F(table, place, since, name, member) extern void name##_address(void) __asm__(#name);
#include "functions.def"
#undef F

typedef struct {
    const char *table;
    unsigned place;
    uint32_t since;
    const char *name;
    void (*address)(void);
} function;

static const function functions[] = {
#define F(table, place, since, name, member) {#table, place, ZE_MAKE(1, since), #name, name##_address},
#include "functions.def"
#undef F
};

enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* SIMZE_MISSING=zeMemGetAddressRange,zeEventHostReset of all drivers, SIMZE_MISSING_1=… of the second driver */
static bool is_listed(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ',')) return true;
    return false;
}

static bool is_missing(const char *name) {
    const char *of_second = SIMZE_NUMBER == 1 ? getenv("SIMZE_MISSING_1") : NULL;
    return is_listed(getenv("SIMZE_MISSING"), name) || is_listed(of_second, name);
}

static ze_result_t fill(const char *name, const char *table, uint32_t version, void **out) {
    sim_note("%s version=%u.%u", name, version >> 16, version & 0xffff);
    if (!out) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const function *each = &functions[i];
        if (strcmp(each->table, table) == 0 && each->since <= version && each->since <= sim.api && !is_missing(each->name) &&
            !(sim.no_table && each->since == ZE_MAKE(1, 12)))
            out[each->place] = (void *)(uintptr_t)each->address;
    }
    return ZE_RESULT_SUCCESS;
}

#define TABLE(symbol, table) \
    EXPORT ze_result_t symbol(uint32_t version, void **out) { return fill(__func__, #table, version, out); }
TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t)
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t)
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t)
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t)
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t)
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t)
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t)
TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
TABLE(zeGetImageProcAddrTable, ze_image_dditable_t)
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t)

/* Loaders up to 1.20 refuse a driver that lacks one of these (measured). They are empty. */
#define EMPTY(symbol) \
    EXPORT ze_result_t symbol(uint32_t version, void **out) { return fill(__func__, "", version, out); }
EMPTY(zeGetKernelProcAddrTable)
EMPTY(zeGetModuleProcAddrTable)
EMPTY(zeGetModuleBuildLogProcAddrTable)
EMPTY(zeGetPhysicalMemProcAddrTable)
EMPTY(zeGetSamplerProcAddrTable)
EMPTY(zeGetVirtualMemProcAddrTable)
EMPTY(zetGetDeviceProcAddrTable)
EMPTY(zetGetContextProcAddrTable)
EMPTY(zetGetCommandListProcAddrTable)
EMPTY(zetGetKernelProcAddrTable)
EMPTY(zetGetModuleProcAddrTable)
EMPTY(zetGetDebugProcAddrTable)
EMPTY(zetGetMetricProcAddrTable)
EMPTY(zetGetMetricGroupProcAddrTable)
EMPTY(zetGetMetricQueryProcAddrTable)
EMPTY(zetGetMetricQueryPoolProcAddrTable)
EMPTY(zetGetMetricStreamerProcAddrTable)
EMPTY(zetGetTracerExpProcAddrTable)
EMPTY(zesGetDeviceProcAddrTable)
EMPTY(zesGetDriverProcAddrTable)
EMPTY(zesGetDiagnosticsProcAddrTable)
EMPTY(zesGetEngineProcAddrTable)
EMPTY(zesGetFabricPortProcAddrTable)
EMPTY(zesGetFanProcAddrTable)
EMPTY(zesGetFirmwareProcAddrTable)
EMPTY(zesGetFrequencyProcAddrTable)
EMPTY(zesGetLedProcAddrTable)
EMPTY(zesGetMemoryProcAddrTable)
EMPTY(zesGetPerformanceFactorProcAddrTable)
EMPTY(zesGetPowerProcAddrTable)
EMPTY(zesGetPsuProcAddrTable)
EMPTY(zesGetRasProcAddrTable)
EMPTY(zesGetSchedulerProcAddrTable)
EMPTY(zesGetStandbyProcAddrTable)
EMPTY(zesGetTemperatureProcAddrTable)

/* The four functions by name, for loaders that do not know them. Intel's driver returns none of them. */
ze_result_t zeDriverGetExtensionFunctionAddress(ze_driver_handle_t handle, const char *name, void **out) {
    CALL("driver=%p name=%s", (void *)handle, name ? name : "null");
    sim_driver *driver;
    TRY(sim_get(handle, SIM_DRIVER, &driver));
    NEEDS(name && out);
    for (size_t i = 0; i < FUNCTIONS && !sim.no_address; i++)
        if (functions[i].since == ZE_MAKE(1, 12) && sim.api >= ZE_MAKE(1, 12) && strcmp(functions[i].name, name) == 0 &&
            !is_missing(name)) {
            *out = (void *)(uintptr_t)functions[i].address;
            RETURN(ZE_RESULT_SUCCESS);
        }
    RETURN(ZE_RESULT_ERROR_INVALID_ARGUMENT);
}
