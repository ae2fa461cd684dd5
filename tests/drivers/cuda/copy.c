/* Copies. A copy to pageable memory blocks the caller, a copy from it only if it is large (measured). */
#include "sim.h"

/* ---- execution */
/* Rows from one slice to the next. For layers of one row, the driver does not take a height of several rows: the copy uses
 * other bytes and reports no error (measured on an H200 with an image of one dimension). */
static size_t rows_of_slice(const sim_side *side, const sim_copy *copy) {
    const sim_side *other = side == &copy->from ? &copy->to : &copy->from;
    if (other->type == MEMORY_ARRAY && other->array->rows == 1 && other->array->slices > 1) return 1;
    return side->height ? side->height : copy->height;
}

static char *row_of(const sim_side *side, const sim_copy *copy, size_t z, size_t y) {
    if (side->type == MEMORY_ARRAY) {
        const sim_array *array = side->array;
        size_t pitch = array->columns * array->element;
        size_t rows = array->rows;
        return array->mipmap->data + array->offset + ((side->z + z) * rows + side->y + y) * pitch + side->x;
    }
    size_t rows = rows_of_slice(side, copy), pitch = side->pitch ? side->pitch : copy->width;
    uintptr_t at = side->address + ((side->z + z) * rows + side->y + y) * pitch + side->x;
    if (side->type == MEMORY_HOST) return (char *)at;
    return sim_data(at, copy->width);
}

static bool run_copy(sim_work *work, bool for_ever) {
    (void)for_ever;
    sim_copy *copy = &work->copy;
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++) {
            pthread_mutex_lock(&sim.lock);
            char *from = row_of(&copy->from, copy, z, y), *to = row_of(&copy->to, copy, z, y);
            if (!from || !to) sim_async(CUDA_ERROR_ILLEGAL_ADDRESS);
            pthread_mutex_unlock(&sim.lock);
            if (from && to) memmove(to, from, copy->width);
        }
    return true;
}

static void drop_copy(sim_work *work) { free(work->copy.staged); }

/* ---- checks */
/* An address that the driver knows: page-locked memory, or device memory. */
static void classify(sim_side *side) {
    if (side->type != MEMORY_HOST && side->type != MEMORY_UNIFIED) return;
    side->type = sim_allocation_of(side->address) ? MEMORY_DEVICE : MEMORY_HOST;
}

static bool is_inside(const sim_side *side, const sim_copy *copy) {
    if (side->type == MEMORY_HOST) return side->address != 0;
    if (side->type == MEMORY_ARRAY) {
        sim_array *array = side->array;
        size_t rows = array->rows;
        return side->x + copy->width <= array->columns * array->element && side->y + copy->height <= rows &&
               side->z + copy->depth <= array->slices;
    }
    size_t rows = rows_of_slice(side, copy), pitch = side->pitch ? side->pitch : copy->width;
    uintptr_t first = side->address + (side->z * rows + side->y) * pitch + side->x;
    size_t span = ((copy->depth - 1) * rows + copy->height - 1) * pitch + copy->width;
    return sim_data(first, span) != NULL;
}

static void stage(sim_work *work) {
    sim_copy *copy = &work->copy;
    copy->staged = malloc(copy->width * copy->height * copy->depth);
    char *into = copy->staged;
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++, into += copy->width)
            memcpy(into, row_of(&copy->from, copy, z, y), copy->width);
    copy->from = (sim_side){.type = MEMORY_HOST, .address = (uintptr_t)copy->staged};
}

static CUresult copy(sim_copy wanted, CUstream handle, bool asynchronous) {
    sim_stream *stream;
    CUresult code = sim_stream_of(handle, &stream);
    if (!code) code = sim_legacy(stream, true);
    if (code) return code;
    if (wanted.width == 0 || wanted.height == 0 || wanted.depth == 0) return CUDA_SUCCESS;
    classify(&wanted.from);
    classify(&wanted.to);
    if (!is_inside(&wanted.from, &wanted) || !is_inside(&wanted.to, &wanted)) return CUDA_ERROR_INVALID_VALUE;
    bool pageable_to = wanted.to.type == MEMORY_HOST, pageable_from = wanted.from.type == MEMORY_HOST;
    sim_work *work = sim_work_new(NODE_MEMCPY, run_copy);
    work->takes_place = true;
    work->drop = drop_copy;
    work->copy = wanted;
    if (stream->capture) return sim_submit(stream, work);
    sim_allocation *from = sim_allocation_of(wanted.from.address), *to = sim_allocation_of(wanted.to.address);
    bool device_only = wanted.from.type != MEMORY_HOST && wanted.to.type != MEMORY_HOST &&
                       !(from && from->type == MEMORY_HOST) && !(to && to->type == MEMORY_HOST);
    bool staged = !pageable_to && pageable_from && wanted.width * wanted.height * wanted.depth <= MAX_STAGED;
    if (staged && asynchronous) stage(work);
    sim_point end = sim_enqueue(stream, work, NULL, 0);
    /* measured: a copy between two places in page-locked memory is made on the caller's thread, behind the stream */
    bool between_host = from && to && from->type == MEMORY_HOST && to->type == MEMORY_HOST;
    if (asynchronous ? pageable_to || (pageable_from && !staged) || between_host : !device_only) sim_sleep_until(end);
    return CUDA_SUCCESS;
}

/* ---- linear copies */
static sim_copy line(CUdeviceptr to, int to_type, CUdeviceptr from, int from_type, size_t size) {
    sim_copy made = {.width = size, .height = 1, .depth = 1};
    made.to = (sim_side){.type = to_type, .address = to};
    made.from = (sim_side){.type = from_type, .address = from};
    return made;
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define COPY(name, to_type, to_kind, from_type, from_kind)                                                       \
    EXPORT CUresult cuMemcpy##name##Async_v2(to_type to, from_type from, size_t size, CUstream stream) {         \
        CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu stream=%p", ADDRESS(to), ADDRESS(from), size, (void *)stream); \
        RETURN(copy(line(ADDRESS(to), to_kind, ADDRESS(from), from_kind, size), stream, true));                  \
    }                                                                                                            \
    EXPORT CUresult cuMemcpy##name##_v2(to_type to, from_type from, size_t size) {                               \
        CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu", ADDRESS(to), ADDRESS(from), size);                  \
        RETURN(copy(line(ADDRESS(to), to_kind, ADDRESS(from), from_kind, size), CU_STREAM_LEGACY, false));       \
    }                                                                                                            \
    EXPORT CUresult cuMemcpy##name##_v2_ptds(to_type to, from_type from, size_t size) {                          \
        CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu", ADDRESS(to), ADDRESS(from), size);                  \
        RETURN(copy(line(ADDRESS(to), to_kind, ADDRESS(from), from_kind, size), CU_STREAM_PER_THREAD, false));   \
    }
COPY(HtoD, CUdeviceptr, MEMORY_DEVICE, const void *, MEMORY_HOST)
COPY(DtoH, void *, MEMORY_HOST, CUdeviceptr, MEMORY_DEVICE)
COPY(DtoD, CUdeviceptr, MEMORY_DEVICE, CUdeviceptr, MEMORY_DEVICE)

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu stream=%p", to, from, size, (void *)stream);
    RETURN(copy(line(to, MEMORY_UNIFIED, from, MEMORY_UNIFIED, size), stream, true));
}

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu", to, from, size);
    RETURN(copy(line(to, MEMORY_UNIFIED, from, MEMORY_UNIFIED, size), CU_STREAM_LEGACY, false));
}

EXPORT CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size) {
    CALL_AS(CALL_WORK, "dst=0x%llx src=0x%llx size=%zu", to, from, size);
    RETURN(copy(line(to, MEMORY_UNIFIED, from, MEMORY_UNIFIED, size), CU_STREAM_PER_THREAD, false));
}

/* ---- copies of rows and slices */
static CUresult side(sim_side *out, int type, const void *host, CUdeviceptr device, CUarray handle, size_t x, size_t y,
                     size_t z, size_t pitch, size_t height) {
    *out = (sim_side){.type = type, .x = x, .y = y, .z = z, .pitch = pitch, .height = height};
    switch (type) {
        case MEMORY_HOST: out->address = (uintptr_t)host; return CUDA_SUCCESS;
        case MEMORY_DEVICE:
        case MEMORY_UNIFIED: out->address = device; return CUDA_SUCCESS;
        case MEMORY_ARRAY:
            out->array = sim_known(handle, SIM_ARRAY);
            return out->array && out->array->object.alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool is_whole(const sim_side *side, size_t width) {
    return side->type != MEMORY_ARRAY || (side->x % side->array->element == 0 && width % side->array->element == 0);
}

/* "CUDA array elements must have the same size", "must be evenly divisible by the array element size", and a height that
 * is less than the rows of a slice makes slices overlap. Regions of one array that overlap give no defined result. */
static CUresult fits_arrays(const sim_copy *copy) {
    const sim_side *from = &copy->from, *to = &copy->to;
    if (!is_whole(from, copy->width) || !is_whole(to, copy->width)) return CUDA_ERROR_INVALID_VALUE;
    if (copy->depth > 1)
        for (int i = 0; i < 2; i++) {
            const sim_side *linear = i ? to : from;
            if (linear->type != MEMORY_ARRAY && linear->height && linear->height < copy->height) return CUDA_ERROR_INVALID_VALUE;
        }
    if (from->type != MEMORY_ARRAY || to->type != MEMORY_ARRAY) return CUDA_SUCCESS;
    if (from->array->element != to->array->element) return CUDA_ERROR_INVALID_VALUE;
#define COMMON(at, length) (from->at < to->at + copy->length && to->at < from->at + copy->length)
    if (from->array == to->array && COMMON(x, width) && COMMON(y, height) && COMMON(z, depth))
        sim_abort("the two regions of this array overlap");
#undef COMMON
    return CUDA_SUCCESS;
}

static CUresult box(const CUDA_MEMCPY3D *desc, CUstream stream, bool asynchronous) {
    sim_copy wanted = {.width = desc->width, .height = desc->height, .depth = desc->depth};
    CUresult code = side(&wanted.from, desc->src_type, desc->src_host, desc->src_device, desc->src_array, desc->src_x,
                         desc->src_y, desc->src_z, desc->src_pitch, desc->src_height);
    if (!code)
        code = side(&wanted.to, desc->dst_type, desc->dst_host, desc->dst_device, desc->dst_array, desc->dst_x, desc->dst_y,
                    desc->dst_z, desc->dst_pitch, desc->dst_height);
    if (!code) code = fits_arrays(&wanted);
    if (!code && ((desc->src_pitch && desc->src_pitch < desc->width) || (desc->dst_pitch && desc->dst_pitch < desc->width)))
        code = CUDA_ERROR_INVALID_VALUE;
    return code ? code : copy(wanted, stream, asynchronous);
}

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *desc) {
    return (CUDA_MEMCPY3D){
        .src_x = desc->src_x, .src_y = desc->src_y, .src_type = desc->src_type, .src_host = desc->src_host,
        .src_device = desc->src_device, .src_array = desc->src_array, .src_pitch = desc->src_pitch,
        .dst_x = desc->dst_x, .dst_y = desc->dst_y, .dst_type = desc->dst_type, .dst_host = desc->dst_host,
        .dst_device = desc->dst_device, .dst_array = desc->dst_array, .dst_pitch = desc->dst_pitch,
        .width = desc->width, .height = desc->height, .depth = 1,
    };
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *desc, CUstream stream) {
    CALL_AS(CALL_WORK, "copy=%s stream=%p", sim_hex(desc, sizeof *desc), (void *)stream);
    REFUSE_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    RETURN(box(desc, stream, true));
}

EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *desc) {
    CALL_AS(CALL_WORK, "copy=%s", sim_hex(desc, sizeof *desc));
    REFUSE_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    RETURN(box(desc, CU_STREAM_LEGACY, false));
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *desc, CUstream stream) {
    CALL_AS(CALL_WORK, "copy=%s stream=%p", sim_hex(desc, sizeof *desc), (void *)stream);
    REFUSE_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D made = flat(desc);
    RETURN(box(&made, stream, true));
}

EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *desc) {
    CALL_AS(CALL_WORK, "copy=%s", sim_hex(desc, sizeof *desc));
    REFUSE_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D made = flat(desc);
    RETURN(box(&made, CU_STREAM_LEGACY, false));
}
