/* Mipmapped arrays: consecutive levels, rows without padding, from the offset on. */
#include "sim.h"

/* Measured on an H200 (580.159.04), as are the refusals below. P010 and P016 need a flag; xsem uses neither. */
static bool takes_channels(unsigned format, unsigned channels) {
    int since = format == 0x50 ? 12080 : format >= 0x91 ? 11050 : 0; /* the CUDA version whose header adds the format */
    if (sim.version < since) return false;
    switch (format) {
        case 0x01: case 0x02: case 0x03: case 0x08: case 0x09: case 0x0a: case 0x10: case 0x20:
            return channels == 1 || channels == 2 || channels == 4;
        case 0x50: case 0x91: case 0x92: case 0x93: case 0x94: case 0x95: case 0x96: case 0x9d: case 0x9e: return channels == 4;
        case 0x97: case 0x98: return channels == 1;
        case 0x99: case 0x9a: return channels == 2;
        case 0x9b: case 0x9c: return channels == 3;
    }
    return format >= 0xc0 && format <= 0xcb && channels == 1u << (format - 0xc0) % 3;
}

static size_t block_of(unsigned format) { return format >= 0x91 && format <= 0x9e ? 4 : 1; }

/* Bytes of a pixel or of a block of pixels; 0 for a format or a number of channels that the driver refuses. */
static size_t element_size(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    unsigned format = desc->format;
    if (!takes_channels(format, desc->channels)) return 0;
    if (block_of(format) > 1) return format == 0x91 || format == 0x92 || format == 0x97 || format == 0x98 ? 8 : 16;
    if (format == 0x50) return 4;
    if (format >= 0xc0) return ((format - 0xc0) / 3 % 2 ? 2 : 1) * desc->channels;
    size_t component = 1;
    if (format == 0x02 || format == 0x09 || format == 0x10) component = 2;
    if (format == 0x03 || format == 0x0a || format == 0x20) component = 4;
    return component * desc->channels;
}

static size_t halved(size_t length, unsigned level) {
    length >>= level;
    return length ? length : 1;
}

static size_t up(size_t length, size_t unit) { return (length + unit - 1) / unit * unit; }

/* Blocks of 64 bytes x 8 rows. A column of up to 16 of them is one unit, as high as the rows need. */
static size_t unit_of(size_t rows) {
    size_t unit = 1;
    while (unit < 16 && unit * 8 < rows) unit *= 2;
    return 512 * unit;
}

static size_t tiled(size_t row, size_t rows) { return up(row, 64) / 64 * up(rows, unit_of(rows) / 64) / 8 * 512; }

static bool flags_are_good(const CUDA_ARRAY3D_DESCRIPTOR *desc) {
    const unsigned known = ARRAY_LAYERED | ARRAY_SURFACE | ARRAY_CUBEMAP | ARRAY_GATHER | ARRAY_COLOR | ARRAY_VIDEO;
    bool layers = desc->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);
    if (desc->flags & ~known) return false; /* also DEPTH_TEXTURE, SPARSE and DEFERRED_MAPPING */
    if ((desc->flags & ARRAY_VIDEO) && sim.version < 12050) return false;
    if ((desc->flags & ARRAY_GATHER) && (layers || !desc->height || desc->depth)) return false;
    if (layers && !desc->depth) return false;
    if ((desc->flags & ARRAY_CUBEMAP) && (desc->depth % 6 || desc->width != desc->height)) return false;
    return !((desc->flags & ARRAY_CUBEMAP) && desc->depth != 6 && !(desc->flags & ARRAY_LAYERED));
}

/* Fills `level` with the shapes. Returns the size of all rows, or 0 for a bad descriptor. `whole` becomes the size that the
 * image needs in external memory. */
static size_t shapes(sim_mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels, size_t *whole) {
    size_t element = element_size(desc), block = block_of(desc->format), offset = 0, slice = 0;
    const size_t most = 1 << 20;
    if (!element || !desc->width || levels == 0 || levels > 16) return 0;
    if (desc->width > most || desc->height > most || desc->depth > most) return 0;
    if (!flags_are_good(desc) || (block > 1 && !desc->height)) return 0;
    size_t longest = desc->width > desc->height ? desc->width : desc->height;
    bool layers = desc->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP);
    if (!layers && desc->depth > longest) longest = desc->depth;
    if (longest >> (levels - 1) == 0) return 0;
    for (unsigned i = 0; i < levels; i++) {
        sim_array *level = sim_new(SIM_ARRAY, sizeof *level);
        level->mipmap = mipmap;
        level->element = element;
        level->offset = offset;
        level->desc = *desc;
        level->desc.width = halved(desc->width, i);
        if (desc->height) level->desc.height = halved(desc->height, i);
        level->columns = up(level->desc.width, block) / block;
        level->rows = desc->height ? up(level->desc.height, block) / block : 1;
        if (desc->depth && !layers) level->desc.depth = halved(desc->depth, i);
        level->slices = level->desc.depth ? level->desc.depth : 1;
        offset += level->columns * element * level->rows * level->slices;
        slice += tiled(level->columns * element, level->rows) * (layers ? 1 : level->slices);
        mipmap->level[i] = level;
    }
    mipmap->levels = levels;
    *whole = layers && desc->depth ? up(slice, unit_of(mipmap->level[0]->rows)) * desc->depth : slice;
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
    size_t whole = 0, size = shapes(mipmap, desc, levels, &whole);
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    if (block_of(desc->format) > 1 && (desc->flags & ARRAY_SURFACE)) return CUDA_ERROR_NOT_SUPPORTED;
    mipmap->device = context->device;
    if (memory) {
        code = sim_external_share(memory, offset, whole, &mipmap->map, &mipmap->map_size);
        if (code) return code;
        mipmap->data = (char *)mipmap->map + offset;
    } else {
        mipmap->map_size = size;
        mipmap->map = sim_pages_new(size);
        if (!mipmap->map) return CUDA_ERROR_OUT_OF_MEMORY;
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
    sim_pages_free(mipmap->map, mipmap->map_size);
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
