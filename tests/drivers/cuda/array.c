/* Mipmapped arrays: consecutive levels, rows without padding, from the offset on. */
#include "sim.h"

static size_t element_size(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    size_t component;
    switch (desc->format) {
        case 0x01: case 0x08: component = 1; break;
        case 0x02: case 0x09: case 0x10: component = 2; break;
        case 0x03: case 0x0a: case 0x20: component = 4; break;
        default: return 0;
    }
    return desc->channels == 1 || desc->channels == 2 || desc->channels == 4 ? component * desc->channels : 0;
}

static size_t halved(size_t length, unsigned level) {
    length >>= level;
    return length ? length : 1;
}

/* Fills `level` with the shapes. Returns the total size, or 0 for a bad descriptor. */
static size_t shapes(sim_mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels) {
    size_t element = element_size(desc), offset = 0;
    const size_t most = 1 << 20;
    if (!element || !desc->width || levels == 0 || levels > 16) return 0;
    if (desc->width > most || desc->height > most || desc->depth > most) return 0;
    size_t longest = desc->width > desc->height ? desc->width : desc->height;
    bool layers = desc->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);
    if (!layers && desc->depth > longest) longest = desc->depth;
    if (layers && !desc->depth) return 0;
    if ((desc->flags & ARRAY_CUBEMAP) && (desc->depth % 6 || desc->width != desc->height)) return 0;
    if (longest >> (levels - 1) == 0) return 0;
    for (unsigned i = 0; i < levels; i++) {
        sim_array *level = sim_new(SIM_ARRAY, sizeof *level);
        level->mipmap = mipmap;
        level->element = element;
        level->offset = FAULTY(levels_are_one) ? 0 : offset;
        level->desc = *desc;
        level->desc.width = halved(desc->width, i);
        if (desc->height) level->desc.height = halved(desc->height, i);
        if (desc->depth && !layers) level->desc.depth = halved(desc->depth, i);
        level->slices = level->desc.depth ? level->desc.depth : 1;
        offset += level->desc.width * (level->desc.height ? level->desc.height : 1) * level->slices * element;
        mipmap->level[i] = level;
    }
    mipmap->levels = levels;
    return offset;
}

static CUresult make(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels, CUexternalMemory memory,
                     size_t offset) {
    sim_context *context;
    CUresult code = sim_current(&context);
    if (!code) code = sim_unsafe();
    if (code) return code;
    if (!out || !desc) return CUDA_ERROR_INVALID_VALUE;
    sim_mipmap *mipmap = sim_new(SIM_MIPMAP, sizeof *mipmap);
    size_t size = shapes(mipmap, desc, levels);
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    mipmap->device = context->device;
    if (memory) {
        code = sim_external_share(memory, offset, size, &mipmap->map, &mipmap->map_size);
        if (code) return code;
        mipmap->data = (char *)mipmap->map + offset;
    } else {
        mipmap->map_size = size;
        mipmap->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mipmap->map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        mipmap->data = mipmap->map;
    }
    *out = mipmap;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels) {
    CALL_AS(CALL_WORK, "desc=%s levels=%u", sim_hex(desc, sizeof *desc), levels);
    RETURN(make(out, desc, levels, NULL, 0));
}

EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *out, CUexternalMemory memory,
                                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc) {
    CALL_AS(CALL_WORK, "extMem=%p desc=%s", (void *)memory, sim_hex(desc, sizeof *desc));
    sim_context *context;
    TRY(sim_current(&context));
    REFUSE_IF(!memory || !desc, CUDA_ERROR_INVALID_VALUE);
    RETURN(make(out, &desc->array, desc->levels, memory, desc->offset));
}

static CUresult mipmap_of(CUmipmappedArray handle, sim_mipmap **out) {
    if (!handle) return CUDA_ERROR_INVALID_HANDLE; /* measured */
    *out = sim_known(handle, SIM_MIPMAP);
    if (!*out) sim_abort("this is not a mipmapped array");
    return (*out)->object.alive ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned level) {
    CALL_AS(CALL_WORK, "mipmap=%p level=%u", (void *)handle, level);
    sim_mipmap *mipmap;
    TRY(mipmap_of(handle, &mipmap));
    REFUSE_IF(!out || level >= mipmap->levels, CUDA_ERROR_INVALID_VALUE);
    *out = mipmap->level[level];
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    CALL_AS(CALL_WORK, "mipmap=%p", (void *)handle);
    TRY(sim_unsafe());
    sim_mipmap *mipmap;
    TRY(mipmap_of(handle, &mipmap));
    mipmap->object.alive = false;
    for (unsigned i = 0; i < mipmap->levels; i++) mipmap->level[i]->object.alive = false;
    sim_drain_device(mipmap->device); /* measured: blocks behind any unmet wait */
    munmap(mipmap->map, mipmap->map_size);
    RETURN(CUDA_SUCCESS);
}

EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray handle) {
    CALL("array=%p", (void *)handle);
    sim_array *array = sim_known(handle, SIM_ARRAY);
    REFUSE_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!array || !array->object.alive, CUDA_ERROR_INVALID_HANDLE);
    *desc = array->desc;
    RETURN(CUDA_SUCCESS);
}
