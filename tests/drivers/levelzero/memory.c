/* Memory: allocations and imports. It is memory of this process. With SIMZE_GUARD=1 the program cannot read or write at device
 * addresses, as on a GPU. */
#include "sim.h"

#define PAGE 4096u
#define MEMORY_KMT (0x8u | 0x20u) /* OPAQUE_WIN32_KMT, D3D_TEXTURE_KMT */

#define POOL_BYTES ((size_t)2 << 20)
#define LARGEST_POOLED ((size_t)64 << 10)
#define LARGEST_UNCOMPRESSED 1024u

static sim_allocation **table;
static size_t count, room;
static sim_allocation *pool;       /* contains small allocations; it is not in the table */
static uint64_t next_id = 1;

static size_t pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

sim_allocation *sim_allocation_of(const void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    for (size_t i = count; i-- > 0;)
        if (address >= table[i]->address && address - table[i]->address < table[i]->size) return table[i];
    return NULL;
}

/* An address outside all allocations belongs to the program. */
char *sim_data(const void *address, size_t size, sim_allocation **out) {
    sim_allocation *found = sim_allocation_of(address);
    *out = found;
    if (!found) return (char *)(uintptr_t)address;
    size_t offset = (uintptr_t)address - found->address;
    if (size > found->size - offset) sim_abort("this range leaves its allocation");
    return found->data + offset;
}

static sim_allocation *make(sim_context *context, sim_device *device, int type, void *map, size_t size) {
    sim_allocation *made = calloc(1, sizeof *made);
    made->type = type;
    made->context = context;
    made->device = device;
    made->id = next_id++;
    made->file = made->exported = -1;
    made->map = map;
    made->size = size;
    made->map_size = pages(size);
    made->data = map;
    made->address = (uintptr_t)map;
    if (sim.guard && type == ZE_MEMORY_TYPE_DEVICE) {
        made->guard_size = made->map_size;
        made->guard = sim_pages_reserve(made->guard_size);
        made->address = (uintptr_t)made->guard;
    }
    return made;
}

static void *add(sim_allocation *made) {
    if (count == room) table = realloc(table, (room = room ? 2 * room : 64) * sizeof *table);
    table[count++] = made;
    made->context->users++;
    return (void *)made->address;
}

static void unmake(sim_allocation *found) {
    if (found->map && !found->of_program) sim_pages_free(found->map, found->map_size);
    if (found->guard) sim_pages_free(found->guard, found->guard_size);
    if (found->file >= 0) close(found->file);
    if (found->exported >= 0) close(found->exported);
    free(found);
}

/* Memory that can be exported is a file of host (docs/host-objects.md). Windows: no memory can be exported. */
static void *map_file(size_t size, int *file) {
#ifdef _WIN32
    *file = -1;
    return sim_pages_new(pages(size));
#else
    *file = xsem_host_memory_create(pages(size));
    void *map = *file < 0 ? MAP_FAILED : mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    return map == MAP_FAILED ? NULL : map;
#endif
}

/* The file of an export has the compressed bytes, which importers cannot read. */
static void *map_compressed(size_t size, int *file) {
    void *compressed = map_file(size, file);
    if (!compressed) return NULL;
    memset(compressed, 0xC0, size);
    sim_pages_free(compressed, pages(size));
    return sim_pages_new(pages(size));
}

/* ---- the pool: small device allocations that are not exportable, as in NEO. It ends with its last allocation. */
static sim_allocation *pooled(sim_context *context, sim_device *device, size_t size) {
    if (pool && (pool->context != context || pool->device != device || POOL_BYTES - pool->used < pages(size))) return NULL;
    if (!pool) {
        int file;
        void *map = map_file(POOL_BYTES, &file);
        if (!map) return NULL;
        pool = make(context, device, ZE_MEMORY_TYPE_DEVICE, map, POOL_BYTES);
        pool->file = file;
    }
    sim_allocation *made = calloc(1, sizeof *made);
    *made = *pool;
    made->pool = pool;
    made->map = made->guard = NULL;
    made->file = made->exported = -1;
    made->address += pool->used;
    made->data += pool->used;
    made->size = size;
    pool->used += pages(size);
    pool->chunks++;
    return made;
}

static void leave_pool(void) {
    if (--pool->chunks) return;
    unmake(pool);
    pool = NULL;
}

/* ---- imports */
#ifdef _WIN32
/* A section of the host device; the caller keeps its handle. A KMT handle gives memory that is not shared. */
static ze_result_t map_win32(const ze_external_memory_import_win32_handle_t *import, void **map, size_t *size) {
    if (import->flags & MEMORY_KMT) return (*map = sim_pages_new(pages(*size))) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    HANDLE own = sim_nt_open(import->handle, import->name);
    bool memory = own && xsem_host_recognise(own) == XSEM_HOST_MEMORY;
    *size = memory ? (size_t)xsem_host_section_size(own) : 0;
    *map = memory ? MapViewOfFile(own, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, *size) : NULL;
    if (own) CloseHandle(own);
    return *map ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}
#else
/* Memory that is not shared, of the requested size. */
static ze_result_t map_win32(const ze_external_memory_import_win32_handle_t *import, void **map, size_t *size) {
    (void)import;
    return (*map = sim_pages_new(pages(*size))) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}
#endif

#ifdef _WIN32
static ze_result_t map_fd(int fd, void **map, size_t *size) {
    (void)fd, (void)map, (void)size;
    return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}
#else
static ze_result_t map_fd(int fd, void **map, size_t *size) {
    struct stat status;
    if (xsem_host_recognise(fd) != XSEM_HOST_MEMORY || fstat(fd, &status) != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *size = (size_t)status.st_size;
    *map = mmap(NULL, pages(*size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*map == MAP_FAILED) {
        *map = NULL;
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (sim.fd_fate != FD_OPEN) close(fd); /* a failed import leaves it open in every release */
    return ZE_RESULT_SUCCESS;
}
#endif

ze_result_t sim_import(const void *chain, void **map, size_t *size, uint32_t *exports) {
    *map = NULL;
    for (const ze_base_desc_t *each = chain; each; each = each->pNext) {
        ze_result_t code = ZE_RESULT_SUCCESS;
        if (each->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD && !sim.windows) {
            const ze_external_memory_import_fd_t *import = (const void *)each;
            sim_note("# import fd=%d flags=%u", import->fd, import->flags);
            bool one = import->flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD || import->flags == ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
            code = one ? map_fd(import->fd, map, size) : ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
        } else if (each->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32 && sim.windows) {
            const ze_external_memory_import_win32_handle_t *import = (const void *)each;
            sim_note("# import handle=%p flags=%u named=%d", import->handle, import->flags, import->name != NULL);
            /* NEO reads only the handle. */
            code = sim.intel && !import->handle ? ZE_RESULT_ERROR_INVALID_ARGUMENT : map_win32(import, map, size);
        } else if (each->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC && exports) {
            const ze_external_memory_export_desc_t *export = (const void *)each;
            sim_note("# exportable flags=%u", export->flags);
            *exports = export->flags;
            /* NEO: one known flag suffices. */
            bool known = sim.intel ? (export->flags & sim.export_types) != 0 : (export->flags & ~sim.export_types) == 0;
            code = known ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
        } else if (each->stype != ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC &&
                   each->stype != ZE_STRUCTURE_TYPE_BINDLESS_IMAGE_EXP_DESC) {
            code = ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
        }
        if (code) return code;
    }
    return ZE_RESULT_SUCCESS;
}

/* ---- allocation */
static ze_result_t allocate(sim_context *context, sim_device *device, int type, const void *chain, size_t size,
                            size_t alignment, void **out) {
    if (!out) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (size == 0) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (alignment & (alignment - 1)) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    if (size > (size_t)1 << 30) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    void *map;
    uint32_t exports = 0;
    int file = -1;
    const ze_external_memmap_sysmem_ext_desc_t *program = chain;
    if (program && program->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC && type == ZE_MEMORY_TYPE_HOST) {
        /* ZE_extension_external_memmap_sysmem: whole pages of the program, at their own address. */
        sim_note("# system memory %p size=%llu", program->pSystemMemory, (unsigned long long)program->size);
        if (!program->pSystemMemory || (uintptr_t)program->pSystemMemory % PAGE || program->size % PAGE || program->size != size)
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        sim_allocation *pages_of_program = make(context, device, type, program->pSystemMemory, size);
        pages_of_program->of_program = true;
        *out = add(pages_of_program);
        return ZE_RESULT_SUCCESS;
    }
    /* An import ignores the given size and uses the size of the object. */
    ze_result_t code = sim_import(chain, &map, &size, &exports);
    if (code) return code;
    bool plain = !map && !exports && type == ZE_MEMORY_TYPE_DEVICE;
    sim_allocation *made = plain && sim.pool && size <= LARGEST_POOLED ? pooled(context, device, size) : NULL;
    if (!made) {
        /* NEO exports device memory that was not made exportable, too. */
        if (plain && sim.compresses && size > LARGEST_UNCOMPRESSED) map = map_compressed(size, &file);
        else if (exports || (plain && sim.intel)) map = map_file(size, &file);
        else if (!map) map = sim_pages_new(pages(size));
        if (!map) {
            if (file >= 0) close(file);
            return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
        }
        made = make(context, device, type, map, size);
        made->file = file;
        made->exports = exports;
    }
    *out = add(made);
    sim_note("# allocated %p size=%zu", *out, size);
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context_handle, const ze_device_mem_alloc_desc_t *desc, size_t size,
                             size_t alignment, ze_device_handle_t device_handle, void **out) {
    CALL("context=%p desc=%s size=%zu alignment=%zu device=%p", (void *)context_handle, sim_hex(desc, sizeof *desc), size,
         alignment, (void *)device_handle);
    sim_context *context;
    sim_device *device;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc);
    RETURN(allocate(context, device, ZE_MEMORY_TYPE_DEVICE, desc->pNext, size, alignment, out));
}

ze_result_t zeMemAllocHost(ze_context_handle_t context_handle, const ze_host_mem_alloc_desc_t *desc, size_t size,
                           size_t alignment, void **out) {
    CALL("context=%p desc=%s size=%zu alignment=%zu", (void *)context_handle, sim_hex(desc, sizeof *desc), size, alignment);
    sim_context *context;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    NEEDS(desc);
    RETURN(allocate(context, NULL, ZE_MEMORY_TYPE_HOST, desc->pNext, size, alignment, out));
}

ze_result_t zeMemAllocShared(ze_context_handle_t context_handle, const ze_device_mem_alloc_desc_t *desc,
                             const ze_host_mem_alloc_desc_t *host, size_t size, size_t alignment,
                             ze_device_handle_t device_handle, void **out) {
    CALL("context=%p desc=%s size=%zu alignment=%zu device=%p", (void *)context_handle, sim_hex(desc, sizeof *desc), size,
         alignment, (void *)device_handle);
    sim_context *context;
    sim_device *device = NULL;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    if (device_handle) TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && host);
    RETURN(allocate(context, device, ZE_MEMORY_TYPE_SHARED, NULL, size, alignment, out));
}

ze_result_t zeMemFree(ze_context_handle_t context_handle, void *address) {
    CALL("context=%p ptr=%p", (void *)context_handle, address);
    sim_context *context;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    NEEDS(address);
    sim_allocation *found = sim_allocation_of(address);
    REFUSE_IF(!found || found->address != (uintptr_t)address || found->context != context, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (found->queued) sim_abort("this memory is freed while work that is queued uses it");
    for (size_t i = 0; i < count; i++)
        if (table[i] == found) table[i] = table[--count];
    if (found->pool) leave_pool();
    unmake(found);
    context->users--;
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- queries of addresses */
ze_result_t zeMemGetAddressRange(ze_context_handle_t context_handle, const void *address, void **base, size_t *size) {
    CALL("context=%p ptr=%p", (void *)context_handle, address);
    sim_context *context;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    NEEDS(address);
    sim_allocation *found = sim_allocation_of(address);
    REFUSE_IF(!found, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (base) *base = (void *)found->address;
    if (size) *size = found->size;
    RETURN(ZE_RESULT_SUCCESS);
}

/* An fd of the memory. SIMZE_EXPORT_FD tells its owner. */
#ifdef _WIN32
static ze_result_t export_fd(sim_allocation *found, ze_external_memory_export_fd_t *out) {
    (void)found, (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
#else
static ze_result_t export_fd(sim_allocation *found, ze_external_memory_export_fd_t *out) {
    sim_allocation *whole = found->pool ? found->pool : found;
    sim_note("# export flags=%u", out->flags);
    if (found->type != ZE_MEMORY_TYPE_DEVICE || !sim.export_types) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    /* NEO does not read the flags. */
    if (!sim.intel && (!out->flags || (out->flags & ~found->exports))) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (whole->file < 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    int fd = whole->exported;
    /* With tiles, large memory is split over them, and an fd has the part of one tile. */
    if (fd < 0) fd = sim.tiles && found->size > LARGEST_POOLED ? xsem_host_memory_create(found->size / 2)
                                                               : fcntl(whole->file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (sim.keeps_exports) whole->exported = fd;
    out->fd = fd;
    return ZE_RESULT_SUCCESS;
}
#endif

ze_result_t zeMemGetAllocProperties(ze_context_handle_t context_handle, const void *address,
                                    ze_memory_allocation_properties_t *out, ze_device_handle_t *device) {
    CALL("context=%p ptr=%p", (void *)context_handle, address);
    sim_context *context;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    NEEDS(address && out);
    sim_allocation *found = sim_allocation_of(address);
    /* All allocations of the pool have the identifier of the pool, and so have addresses between them. */
    if (!found && pool && (uintptr_t)address - pool->address < pool->size) found = pool;
    if (found && found->context != context) found = NULL;
    out->type = found ? (uint32_t)found->type : ZE_MEMORY_TYPE_UNKNOWN;
    out->id = found ? found->id : 0;
    out->pageSize = found ? PAGE : 0;
    if (device) *device = found ? found->device : NULL;
    if (!found || !out->pNext) RETURN(ZE_RESULT_SUCCESS);
    const ze_base_desc_t *next = out->pNext;
    REFUSE_IF(next->stype != ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD || sim.windows, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    RETURN(export_fd(found, out->pNext));
}
