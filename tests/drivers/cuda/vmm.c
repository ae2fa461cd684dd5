/* Virtual memory management: physical memory, reserved addresses, mappings; shareable handles and dma-bufs. The fd of an
 * export is memory of the `host` device (docs/host-objects.md). The position of a dma-buf's fd is the offset of its first
 * byte in this memory. The codes were measured on an H200 (driver 580.159.04). No call here needs a context, except
 * cuMemGetHandleForAddressRange, and no call waits for work (both measured). Not on Windows. */
#ifndef _WIN32
#include "sim.h"

#include <fcntl.h>

#define GRANULE ((size_t)2 << 20)
#define PAGE 4096u

typedef struct sim_physical {
    sim_object object;
    CUmemAllocationProp prop;
    size_t size;
    int fd;
    int handles, mappings;
} sim_physical;

typedef struct reservation {
    struct reservation *next;
    char *start, *data; /* with SIMCUDA_GUARD=1, the mappings lie at `data`, and a program cannot use `start` */
    size_t size;
} reservation;

static reservation *reserved;
static size_t in_use;
static int held; /* handles, reservations and mappings */

/* For tests in their own process: what is not released, freed and unmapped. */
EXPORT int simcuda_vmm_held(void) { return held; }

static reservation *reservation_of(CUdeviceptr address, size_t size) {
    for (reservation *each = reserved; each; each = each->next) {
        uintptr_t start = (uintptr_t)each->start;
        if (address >= start && address - start <= each->size && size <= each->size - (address - start)) return each;
    }
    return NULL;
}

unsigned sim_handle_types(const sim_physical *physical) { return (unsigned)physical->prop.handle_types; }

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != ALLOCATION_PINNED || prop->location.type != LOCATION_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.id < 0 || prop->location.id >= sim.device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (prop->handle_types == HANDLE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
    if (prop->handle_types & ~HANDLE_POSIX_FD || (prop->handle_types && sim.windows)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option) {
    CALL("prop=%s option=%d", sim_hex(prop, sizeof *prop), option);
    REFUSE_IF(!out || option < 0 || option > 1, CUDA_ERROR_INVALID_VALUE);
    TRY(check_prop(prop));
    *out = GRANULE;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                            unsigned long long flags) {
    CALL_AS(CALL_WORK, "size=%zu prop=%s flags=%llu", size, sim_hex(prop, sizeof *prop), flags);
    REFUSE_IF(!out || flags || size == 0 || size % GRANULE, CUDA_ERROR_INVALID_VALUE);
    TRY(check_prop(prop));
    TRY(sim_unsafe());
    REFUSE_IF(size > ((size_t)1 << 30) - in_use, CUDA_ERROR_OUT_OF_MEMORY);
    int fd = xsem_host_memory_create(size);
    REFUSE_IF(fd < 0, CUDA_ERROR_OUT_OF_MEMORY);
    sim_physical *made = sim_new(SIM_PHYSICAL, sizeof *made);
    made->prop = *prop;
    made->size = size;
    made->fd = fd;
    made->handles = 1;
    held++;
    in_use += size;
    *out = (uintptr_t)made;
    RETURN(CUDA_SUCCESS);
}

/* A released handle of mapped memory still works. */
static CUresult physical_of(CUmemGenericAllocationHandle handle, sim_physical **out) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    *out = sim_known((void *)(uintptr_t)handle, SIM_PHYSICAL);
    return *out && (*out)->object.alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The physical memory lives while it has a handle, a mapping, or an fd outside this driver. */
static void let_go(sim_physical *physical) {
    if (physical->handles || physical->mappings || !physical->object.alive) return;
    physical->object.alive = false;
    in_use -= physical->size;
    close(physical->fd);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CALL("handle=0x%llx", handle);
    sim_physical *physical;
    TRY(physical_of(handle, &physical));
    REFUSE_IF(physical->handles == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(sim_unsafe());
    physical->handles--;
    held--;
    let_go(physical);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle) {
    CALL("handle=0x%llx", handle);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    sim_physical *physical;
    TRY(physical_of(handle, &physical));
    *out = physical->prop;
    RETURN(CUDA_SUCCESS);
}

/* ---- addresses */
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wanted,
                                    unsigned long long flags) {
    CALL("size=%zu alignment=%zu addr=0x%llx flags=%llu", size, alignment, wanted, flags);
    REFUSE_IF(!out || flags || size == 0 || size % GRANULE, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(alignment & (alignment - 1), CUDA_ERROR_INVALID_VALUE);
    size_t step = alignment > GRANULE ? alignment : GRANULE;
    REFUSE_IF(size > SIZE_MAX / 2, CUDA_ERROR_OUT_OF_MEMORY);
    char *map = mmap(NULL, size + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REFUSE_IF(map == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    char *start = (char *)(((uintptr_t)map + step - 1) / step * step);
    if (start > map) munmap(map, (size_t)(start - map));
    munmap(start + size, (size_t)(map + step - start));
    reservation *made = malloc(sizeof *made);
    *made = (reservation){.next = reserved, .start = start, .data = start, .size = size};
    if (sim.guard) made->data = sim_pages_reserve(size);
    reserved = made;
    held++;
    *out = (uintptr_t)start;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    CALL("ptr=0x%llx size=%zu", address, size);
    reservation **at = &reserved;
    while (*at && (uintptr_t)(*at)->start != address) at = &(*at)->next;
    REFUSE_IF(!*at || (*at)->size != size, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(sim_mapped_in(address, size), CUDA_ERROR_INVALID_VALUE);
    reservation *gone = *at;
    *at = gone->next;
    held--;
    munmap(gone->start, gone->size);
    if (gone->data != gone->start) sim_pages_free(gone->data, gone->size);
    free(gone);
    RETURN(CUDA_SUCCESS);
}

/* ---- mappings */
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
    CALL("ptr=0x%llx size=%zu offset=%zu handle=0x%llx flags=%llu", address, size, offset, handle, flags);
    sim_physical *physical;
    TRY(physical_of(handle, &physical));
    TRY(sim_unsafe());
    REFUSE_IF(flags || size == 0 || address % GRANULE, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(offset || size != physical->size, CUDA_ERROR_NOT_SUPPORTED);
    reservation *range = reservation_of(address, size);
    REFUSE_IF(!range, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(sim_mapped_in(address, size), CUDA_ERROR_INVALID_VALUE);
    TRY(sim_map_physical(physical, physical->fd, physical->prop.location.id, address, size,
                         range->data + (address - (uintptr_t)range->start)));
    physical->mappings++;
    held++;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    CALL("ptr=0x%llx size=%zu", address, size);
    sim_allocation *found = sim_allocation_of(address);
    REFUSE_IF(!found || !found->physical || found->address != address, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(size != found->size, CUDA_ERROR_INVALID_VALUE);
    TRY(sim_unsafe());
    sim_physical *physical = found->physical;
    sim_unmap_physical(found);
    physical->mappings--;
    held--;
    let_go(physical);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count) {
    CALL("ptr=0x%llx size=%zu count=%zu desc=%s", address, size, count, sim_hex(desc, sizeof *desc));
    REFUSE_IF(!desc || count == 0 || size == 0 || size % GRANULE, CUDA_ERROR_INVALID_VALUE);
    for (size_t at = 0; at < size;) {
        sim_allocation *found = sim_allocation_of(address + at);
        /* Whole mappings. */
        REFUSE_IF(!found || !found->physical || found->address != address + at || found->size > size - at,
                  CUDA_ERROR_INVALID_VALUE);
        at += found->size;
    }
    for (size_t i = 0; i < count; i++) {
        REFUSE_IF(desc[i].location.type != LOCATION_DEVICE || (desc[i].flags & ~3), CUDA_ERROR_INVALID_VALUE);
        REFUSE_IF(desc[i].location.id < 0 || desc[i].location.id >= sim.device_count, CUDA_ERROR_INVALID_DEVICE);
    }
    for (size_t at = 0; at < size;) {
        sim_allocation *found = sim_allocation_of(address + at);
        found->accessible = desc[count - 1].flags == 3;
        at += found->size;
    }
    RETURN(CUDA_SUCCESS);
}

/* ---- exports. Each one is a new fd of the caller. */
EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                             unsigned long long flags) {
    CALL("handle=0x%llx type=%d flags=%llu", handle, type, flags);
    sim_physical *physical;
    REFUSE_IF(!out || flags, CUDA_ERROR_INVALID_VALUE);
    TRY(physical_of(handle, &physical));
    TRY(sim_unsafe());
    REFUSE_IF(type != HANDLE_POSIX_FD || !(physical->prop.handle_types & type), CUDA_ERROR_INVALID_VALUE);
    int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    REFUSE_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)out = fd;
    RETURN(CUDA_SUCCESS);
}

/* The fd stays the caller's, also after a failure. Each import is a handle of its own on the same memory, and cannot be
 * exported (all measured). */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, int type) {
    CALL("handle=%p type=%d", handle, type);
    struct stat status;
    int fd = (int)(intptr_t)handle;
    REFUSE_IF(!out || type != HANDLE_POSIX_FD, CUDA_ERROR_INVALID_VALUE);
    TRY(sim_unsafe());
    REFUSE_IF(xsem_host_recognise(fd) != XSEM_HOST_MEMORY || fstat(fd, &status) != 0, CUDA_ERROR_UNKNOWN);
    REFUSE_IF(status.st_size == 0 || (size_t)status.st_size % GRANULE, CUDA_ERROR_UNKNOWN);
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    REFUSE_IF(kept < 0, CUDA_ERROR_OPERATING_SYSTEM);
    sim_physical *made = sim_new(SIM_PHYSICAL, sizeof *made);
    made->prop = (CUmemAllocationProp){.type = ALLOCATION_PINNED, .location = {.type = LOCATION_DEVICE}};
    made->size = (size_t)status.st_size;
    made->fd = kept;
    made->handles = 1;
    held++;
    in_use += made->size;
    *out = (uintptr_t)made;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address) {
    CALL("addr=%p", address);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    sim_allocation *found = sim_allocation_of((uintptr_t)address);
    /* measured: not for memory of cuMemAlloc */
    REFUSE_IF(!found || !found->physical, CUDA_ERROR_INVALID_VALUE);
    found->physical->handles++;
    held++;
    *out = (uintptr_t)found->physical;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t size, int type,
                                              unsigned long long flags) {
    CALL("dptr=0x%llx size=%zu type=%d flags=%llu", address, size, type, flags);
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!out || type != 1, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(flags, CUDA_ERROR_NOT_SUPPORTED);
    REFUSE_IF(size == 0 || address % PAGE || size % PAGE, CUDA_ERROR_INVALID_VALUE);
    sim_allocation *found = sim_allocation_of(address);
    REFUSE_IF(!found || found->type != MEMORY_DEVICE || found->mapped, CUDA_ERROR_INVALID_VALUE);
    int supported = !sim.windows;
    (void)sim_told(124, &supported);
    REFUSE_IF(!supported, CUDA_ERROR_NOT_SUPPORTED);
    TRY(sim_unsafe());
    size_t room = found->map_size - (address - found->address);
    REFUSE_IF(size > room, CUDA_ERROR_INVALID_VALUE);
    int source = found->physical ? found->physical->fd : sim_file_of(found);
    REFUSE_IF(source < 0, CUDA_ERROR_OUT_OF_MEMORY);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", source);
    int fd = open(path, O_RDWR | O_CLOEXEC); /* an open file of its own, with a position of its own */
    REFUSE_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    lseek(fd, (off_t)(address - found->address), SEEK_SET);
    *(int *)out = fd;
    RETURN(CUDA_SUCCESS);
}
#endif
