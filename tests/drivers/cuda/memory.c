/* Memory and its allocations. Device memory is memory of this process. With SIMCUDA_GUARD=1 the program cannot read or
 * write at its addresses, as on a GPU. */
#include "sim.h"

#define PAGE 4096u

static sim_allocation **table;
static size_t count, room;

static size_t pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

sim_allocation *sim_allocation_of(CUdeviceptr address) {
    for (size_t i = count; i-- > 0;)
        if (address >= table[i]->address && address - table[i]->address < table[i]->size) return table[i];
    return NULL;
}

/* A range can span adjacent mappings of physical memory. */
char *sim_data(CUdeviceptr address, size_t size) {
    sim_allocation *found = sim_allocation_of(address);
    if (!found || (found->physical && !found->accessible)) return NULL;
    char *data = found->data + (address - found->address);
    for (size_t left = size; left > found->size - (address - found->address);) {
        left -= found->size - (address - found->address);
        address = found->address + found->size;
        sim_allocation *next = sim_allocation_of(address);
        if (!found->physical || !next || !next->physical || !next->accessible || next->data != found->data + found->size)
            return NULL;
        found = next;
    }
    return data;
}

bool sim_allocated_in(CUdeviceptr address, size_t size) {
    for (size_t i = 0; i < count; i++)
        if (table[i]->address < address + size && address < table[i]->address + table[i]->size) return true;
    return false;
}

sim_allocation *sim_allocation_add(sim_context *context, int type, void *map, size_t map_size, size_t offset, size_t size) {
    sim_allocation *made = calloc(1, sizeof *made);
    made->type = type;
    made->context = context;
    made->device = context ? context->device : 0;
    made->map = map;
    made->map_size = map_size;
    made->size = size;
    made->data = (char *)map + offset;
    made->address = (uintptr_t)made->data;
    if (sim.guard && type == MEMORY_DEVICE) {
        made->guard_size = map_size;
        made->guard = sim_pages_reserve(map_size);
        made->address = (uintptr_t)made->guard + offset;
    }
    if (count == room) table = realloc(table, (room = room ? 2 * room : 64) * sizeof *table);
    table[count++] = made;
    return made;
}

void sim_allocation_remove(sim_allocation *gone) {
    for (size_t i = 0; i < count; i++)
        if (table[i] == gone) table[i] = table[--count];
    if (!gone->registered) sim_pages_free(gone->map, gone->map_size);
#ifndef _WIN32
    if (gone->file) close(gone->file - 1);
#endif
    if (gone->guard) sim_pages_free(gone->guard, gone->guard_size);
    free(gone);
}

#ifndef _WIN32
/* ---- mappings of physical memory: vmm.c */
bool sim_mapped_in(CUdeviceptr address, size_t size) {
    for (size_t i = 0; i < count; i++)
        if (table[i]->physical && table[i]->address < address + size && address < table[i]->address + table[i]->size) return true;
    return false;
}

CUresult sim_map_physical(struct sim_physical *physical, int fd, int device, CUdeviceptr address, size_t size, void *place) {
    void *map = mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    sim_allocation *made = sim_allocation_add(NULL, MEMORY_HOST, map, size, 0, size); /* the reservation is its guard */
    made->type = MEMORY_DEVICE;
    made->address = address;
    made->device = device;
    made->physical = physical;
    return CUDA_SUCCESS;
}

void sim_unmap_physical(sim_allocation *gone) {
    mmap(gone->map, gone->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (size_t i = 0; i < count; i++)
        if (table[i] == gone) table[i] = table[--count];
    free(gone);
}

/* A new fd of the memory of cuMemAlloc: the first call puts the bytes into a file, in place. -1: no file. */
int sim_file_of(sim_allocation *allocation) {
    if (!allocation->file) {
        int fd = xsem_host_memory_create(allocation->map_size);
        if (fd < 0 || pwrite(fd, allocation->map, allocation->map_size, 0) != (ssize_t)allocation->map_size ||
            mmap(allocation->map, allocation->map_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            if (fd >= 0) close(fd);
            return -1;
        }
        allocation->file = fd + 1;
    }
    return allocation->file - 1;
}
#endif

void sim_free_all(sim_context *context) {
    for (size_t i = count; i-- > 0;)
        if (table[i]->context == context) sim_allocation_remove(table[i]);
}

static CUresult allocate(CUdeviceptr *out, size_t size, int type) {
    sim_context *context;
    CUresult code = sim_current(&context);
    if (!code) code = sim_unsafe();
    if (code) return code;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) used += table[i]->context == context ? table[i]->size : 0;
    if (size > ((size_t)1 << 30) - used) return CUDA_ERROR_OUT_OF_MEMORY;
    void *map = sim_pages_new(pages(size));
    if (!map) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = sim_allocation_add(context, type, map, pages(size), 0, size)->address;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
    CALL_AS(CALL_WORK, "size=%zu", size);
    REFUSE_IF(!out || size == 0, CUDA_ERROR_INVALID_VALUE);
    RETURN(allocate(out, size, MEMORY_DEVICE));
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream handle) {
    CALL_AS(CALL_WORK, "size=%zu stream=%p", size, (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    REFUSE_IF(!out || size == 0, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(stream->capture, CUDA_ERROR_NOT_SUPPORTED); /* the driver makes a node; xsem makes none */
    RETURN(allocate(out, size, MEMORY_DEVICE));
}

static bool run_free(sim_work *work, bool for_ever) {
    (void)for_ever;
    pthread_mutex_lock(&sim.lock);
    sim_allocation *found = sim_allocation_of(work->copy.to.address);
    if (found) sim_allocation_remove(found);
    pthread_mutex_unlock(&sim.lock);
    return true;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    CALL_AS(CALL_WORK, "dptr=0x%llx stream=%p", address, (void *)handle);
    sim_stream *stream;
    TRY(sim_stream_of(handle, &stream));
    REFUSE_IF(!sim_allocation_of(address), CUDA_ERROR_INVALID_VALUE);
    sim_work *work = sim_work_new(0, run_free);
    work->copy.to.address = address;
    sim_enqueue(stream, work, NULL, 0);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
    CALL_AS(CALL_WORK, "size=%zu flags=%u", size, flags);
    REFUSE_IF(!out || (flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr address = 0;
    sim_context *context;
    TRY(sim_current(&context));
    if (size == 0) *out = NULL; /* measured: success */
    else TRY(allocate(&address, size, MEMORY_HOST));
    *out = (void *)(uintptr_t)address;
    RETURN(CUDA_SUCCESS);
}

static CUresult release(CUdeviceptr address, int type) {
    if (sim_self.in_host_function) return CUDA_ERROR_NOT_PERMITTED;
    sim_context *context;
    if (sim_current(&context) == CUDA_ERROR_CONTEXT_IS_DESTROYED) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult code = sim_unsafe();
    if (code || !address) return code;
    sim_allocation *found = sim_allocation_of(address);
    if (!found || found->address != address || found->type != type || found->physical || found->registered)
        return CUDA_ERROR_INVALID_VALUE;
    sim_hold_others();
    sim_drain_device(found->device); /* measured: blocks behind any unmet wait */
    sim_let_others();
    found = sim_allocation_of(address);       /* another thread may have freed it */
    if (!found || found->address != address) return CUDA_ERROR_INVALID_VALUE;
    sim_allocation_remove(found);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    CALL_AS(CALL_WORK, "dptr=0x%llx", address);
    RETURN(release(address, MEMORY_DEVICE));
}

EXPORT CUresult cuMemFreeHost(void *address) {
    CALL_AS(CALL_WORK, "p=%p", address);
    RETURN(release((uintptr_t)address, MEMORY_HOST));
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned flags) {
    CALL("p=%p flags=%u", address, flags);
    sim_context *context;
    TRY(sim_current(&context));
    sim_allocation *found = sim_allocation_of((uintptr_t)address);
    REFUSE_IF(!out || flags || !found || found->type != MEMORY_HOST, CUDA_ERROR_INVALID_VALUE);
    *out = (uintptr_t)address;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CALL_AS(CALL_WORK, "%s", "");
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!free_bytes || !total, CUDA_ERROR_INVALID_VALUE);
    *free_bytes = *total = (size_t)1 << 30;
    for (size_t i = 0; i < count; i++) *free_bytes -= table[i]->context == context ? table[i]->size : 0;
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    CALL("dptr=0x%llx", address);
    sim_allocation *found = sim_allocation_of(address);
    REFUSE_IF(!found, CUDA_ERROR_NOT_FOUND); /* measured */
    if (base) *base = found->address;
    if (size) *size = found->size;
    RETURN(CUDA_SUCCESS);
}

/* ---- attributes of addresses */
static CUresult attribute(void *out, int which, CUdeviceptr address, bool strict) {
    sim_allocation *found = sim_allocation_of(address);
    if (!found && strict) return CUDA_ERROR_INVALID_VALUE;
    switch (which) {
        case 1: *(CUcontext *)out = found ? found->context : NULL; break;
        case 2: *(unsigned *)out = found ? (unsigned)found->type : 0; break;
        case 3: *(CUdeviceptr *)out = found ? address : 0; break;
        case 4: *(void **)out = found && found->type == MEMORY_HOST ? (void *)(uintptr_t)address : NULL; break;
        case 8: *(unsigned *)out = 0; break;
        case 9: *(int *)out = found ? found->device : -2; break;
        case 11: *(CUdeviceptr *)out = found ? found->address : 0; break;
        case 12: *(size_t *)out = found ? found->size : 0; break;
        case 13: *(unsigned *)out = found != NULL; break;
#ifdef _WIN32
        case 14: *(unsigned long long *)out = 0; break;
#else
        case 14: *(unsigned long long *)out = found && found->physical ? sim_handle_types(found->physical) : 0; break;
#endif
        case 18: *(size_t *)out = found ? found->size : 0; break;
        case 19: *(CUdeviceptr *)out = found ? found->address : 0; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *out, int which, CUdeviceptr address) {
    CALL("attribute=%d ptr=0x%llx", which, address);
    REFUSE_IF(!out, CUDA_ERROR_INVALID_VALUE);
    RETURN(attribute(out, which, address, true));
}

EXPORT CUresult cuPointerGetAttributes(unsigned number, int *which, void **out, CUdeviceptr address) {
    CALL("number=%u ptr=0x%llx", number, address);
    REFUSE_IF(!which || !out || number == 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < number; i++) TRY(attribute(out[i], which[i], address, false));
    RETURN(CUDA_SUCCESS);
}

/* ---- external memory */
typedef struct sim_external_memory {
    sim_object object;
    sim_context *context;
    void *map;
    size_t file_size, size; /* memory beyond the file is not shared: the driver does not check the size */
#ifdef _WIN32
    HANDLE section;
#endif
} sim_external_memory;

/* Another mapping of the same memory; NULL without room. */
#ifdef _WIN32
static void *share(const sim_external_memory *memory) {
    return MapViewOfFile(memory->section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, memory->file_size);
}
#else
static void *share(const sim_external_memory *memory) {
    char *map = memory->map;
    size_t file_size = memory->file_size, size = pages(memory->size);
    char *room_ = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room_ == MAP_FAILED) return NULL;
    /* An old size of 0 duplicates a shared mapping, without its file. */
    bool shared = mremap(map, 0, file_size, MREMAP_MAYMOVE | MREMAP_FIXED, room_) != MAP_FAILED;
    if (shared && size > file_size)
        shared = mremap(map + file_size, 0, size - file_size, MREMAP_MAYMOVE | MREMAP_FIXED, room_ + file_size) !=
                 MAP_FAILED;
    if (shared) return room_;
    munmap(room_, size);
    return NULL;
}
#endif

static CUresult check(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    bool has_handle = desc->handle.win32.handle, has_name = desc->handle.win32.name;
    if (desc->size == 0 || (desc->flags & ~(unsigned)MEM_DEDICATED)) return CUDA_ERROR_INVALID_VALUE;
    if (desc->type >= MEM_D3D11_RESOURCE && sim.version < 10020) return CUDA_ERROR_INVALID_VALUE;
    switch (desc->type) {
        case MEM_OPAQUE_FD: break;
        case MEM_D3D12_RESOURCE:
        case MEM_D3D11_RESOURCE:
        case MEM_D3D11_RESOURCE_KMT:
            if (!(desc->flags & MEM_DEDICATED)) return CUDA_ERROR_INVALID_VALUE;
            /* fall through */
        case MEM_OPAQUE_WIN32:
        case MEM_OPAQUE_WIN32_KMT:
        case MEM_D3D12_HEAP:
            if (has_handle == has_name) return CUDA_ERROR_INVALID_VALUE;
            if ((desc->type == MEM_OPAQUE_WIN32_KMT || desc->type == MEM_D3D11_RESOURCE_KMT) && has_name)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        case MEM_NVSCIBUF:
            if (desc->flags || !desc->handle.nvsci) return CUDA_ERROR_INVALID_VALUE;
            break;
        case MEM_DMABUF_FD:
            if (sim.version < 13000 || desc->flags || desc->handle.fd < 0) return CUDA_ERROR_INVALID_VALUE;
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    bool is_fd = desc->type == MEM_OPAQUE_FD || desc->type == MEM_DMABUF_FD;
    bool here = sim.windows ? !is_fd : sim.tegra ? is_fd || desc->type == MEM_NVSCIBUF : desc->type == MEM_OPAQUE_FD;
    return here ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

#ifdef _WIN32
/* A section of the host device; the caller keeps its handle. A size beyond the section is refused (not measured on Windows). */
static CUresult import(sim_external_memory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    bool kmt = desc->type == MEM_OPAQUE_WIN32_KMT || desc->type == MEM_D3D11_RESOURCE_KMT;
    HANDLE own = sim_nt_open(desc->handle.win32.handle, desc->handle.win32.name, kmt);
    if (!own) return CUDA_ERROR_UNKNOWN;
    CUresult code = xsem_host_recognise(own) == XSEM_HOST_MEMORY ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (!code && xsem_host_section_size(own) < desc->size) code = CUDA_ERROR_INVALID_VALUE;
    memory->size = pages(desc->size);
    memory->file_size = memory->size;
    memory->section = own;
    if (!code && !(memory->map = share(memory))) code = CUDA_ERROR_UNKNOWN;
    if (code && own) CloseHandle(own);
    return code;
}
#else
static CUresult import(sim_external_memory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    memory->size = pages(desc->size);
    if (desc->size > (1ull << 40)) return CUDA_ERROR_OUT_OF_MEMORY;
    char *map = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    memory->map = map;
    memory->file_size = memory->size;
    if (sim.windows || desc->type == MEM_NVSCIBUF) return CUDA_SUCCESS; /* memory that is not shared */
    struct stat status;
    int fd = desc->handle.fd;
    if (xsem_host_recognise(fd) != XSEM_HOST_MEMORY || fstat(fd, &status) != 0) {
        munmap(map, memory->size);
        close(fd); /* measured for a pipe and /dev/null: unlike the fd of a semaphore, this fd is closed */
        return CUDA_ERROR_UNKNOWN;
    }
    if (pages((size_t)status.st_size) < memory->size) memory->file_size = pages((size_t)status.st_size);
    if (mmap(map, memory->file_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(map, memory->size);
        return CUDA_ERROR_UNKNOWN;
    }
    close(fd);
    return CUDA_SUCCESS;
}
#endif

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    CALL_AS(CALL_WORK, "desc=%s%s", sim_hex(desc, sizeof *desc),
            sim_name(desc && sim.windows && desc->type != MEM_NVSCIBUF ? desc->handle.win32.name : NULL));
    sim_context *context;
    TRY(sim_current(&context));
    TRY(sim_unsafe());
    REFUSE_IF(!out || !desc, CUDA_ERROR_INVALID_VALUE);
    TRY(check(desc));
    sim_external_memory made = {.context = context};
    TRY(import(&made, desc));
    sim_external_memory *memory = sim_new(SIM_MEMORY, sizeof *memory);
    made.object = memory->object;
    made.size = made.size < desc->size ? made.size : desc->size;
    *memory = made;
    *out = memory;
    RETURN(CUDA_SUCCESS);
}

static CUresult memory_of(CUexternalMemory handle, sim_external_memory **out) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE; /* measured */
    *out = sim_known(handle, SIM_MEMORY);
    if (!*out) sim_abort("this is not an external memory");
    return CUDA_SUCCESS;
}

/* Returns immediately (measured). Mappings stay usable. */
EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
    CALL_AS(CALL_WORK, "extMem=%p", (void *)handle);
    TRY(sim_unsafe());
    sim_external_memory *memory;
    TRY(memory_of(handle, &memory));
    if (!memory->object.alive) sim_abort("this external memory is destroyed a second time");
    memory->object.alive = false;
    sim_pages_free(memory->map, pages(memory->size));
#ifdef _WIN32
    CloseHandle(memory->section);
#endif
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle,
                                                const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc) {
    CALL_AS(CALL_WORK, "extMem=%p desc=%s", (void *)handle, sim_hex(desc, sizeof *desc));
    sim_context *context;
    sim_external_memory *memory;
    TRY(sim_current(&context));
    TRY(sim_unsafe());
    TRY(memory_of(handle, &memory));
    if (!memory->object.alive) sim_abort("this external memory was destroyed");
    REFUSE_IF(!out || !desc || desc->flags || desc->size == 0, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(desc->offset > memory->size || desc->size > memory->size - desc->offset, CUDA_ERROR_INVALID_VALUE);
    void *map = share(memory);
    REFUSE_IF(!map, CUDA_ERROR_OUT_OF_MEMORY);
    sim_allocation *mapped = sim_allocation_add(context, MEMORY_DEVICE, map, pages(memory->size), desc->offset, desc->size);
    mapped->mapped = true;
    *out = mapped->address;
    RETURN(CUDA_SUCCESS);
}

/* For arrays. */
CUresult sim_external_share(CUexternalMemory handle, size_t offset, size_t size, void **map, size_t *map_size) {
    sim_external_memory *memory;
    CUresult code = memory_of(handle, &memory);
    if (code) return code;
    if (!memory->object.alive) sim_abort("this external memory was destroyed");
    if (offset > memory->size || size > memory->size - offset) return CUDA_ERROR_INVALID_VALUE;
    *map_size = pages(memory->size);
    *map = share(memory);
    return *map ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
