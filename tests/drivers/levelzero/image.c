/* Images: linear, row after row, imported or allocated by the driver. */
#include "work.h"

/* Bytes of one texel, by the format's layout. */
static size_t element_of(uint32_t layout) {
    static const unsigned char bytes[] = {1, 2, 4, 2, 4, 4, 8, 8, 16, 4};
    return layout < sizeof bytes ? bytes[layout] : 0;
}

static ze_result_t shape(sim_image *image, const ze_image_desc_t *desc) {
    image->desc = *desc;
    image->element = element_of(desc->format.layout);
    if (desc->type > ZE_IMAGE_TYPE_BUFFER || desc->format.type > 4) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (!image->element) return ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT;
    image->width = (uint32_t)desc->width;
    image->height = image->depth = 1;
    if (desc->type == ZE_IMAGE_TYPE_2D || desc->type == ZE_IMAGE_TYPE_2DARRAY || desc->type == ZE_IMAGE_TYPE_3D)
        image->height = desc->height;
    if (desc->type == ZE_IMAGE_TYPE_3D) image->depth = desc->depth;
    if (desc->type == ZE_IMAGE_TYPE_1DARRAY || desc->type == ZE_IMAGE_TYPE_2DARRAY) image->depth = desc->arraylevels;
    image->row = image->width * image->element;
    image->slice = image->row * image->height;
    image->size = image->slice * image->depth;
    return image->size && desc->miplevels <= 1 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

ze_result_t zeImageGetProperties(ze_device_handle_t handle, const ze_image_desc_t *desc, ze_image_properties_t *out) {
    CALL("device=%p desc=%s", (void *)handle, sim_hex(desc, sizeof *desc));
    sim_device *device;
    sim_image image = {0};
    TRY(sim_get(handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    TRY(shape(&image, desc));
    out->samplerFilterFlags = 1;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeImageCreate(ze_context_handle_t context_handle, ze_device_handle_t device_handle, const ze_image_desc_t *desc,
                          ze_image_handle_t *out) {
    CALL("context=%p device=%p desc=%s", (void *)context_handle, (void *)device_handle, sim_hex(desc, sizeof *desc));
    sim_context *context;
    sim_device *device;
    sim_image made = {0};
    void *map = NULL;
    TRY(sim_get(context_handle, SIM_CONTEXT, &context));
    TRY(sim_get(device_handle, SIM_DEVICE, &device));
    NEEDS(desc && out);
    TRY(shape(&made, desc));
    const ze_base_desc_t *chain = desc->pNext;
    REFUSE_IF(chain && chain->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD && !sim.images && !sim.intel,
              ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    size_t there = made.size;
    ze_result_t code = sim_import(chain, &map, &there, NULL);
    if (code == ZE_RESULT_ERROR_INVALID_ARGUMENT && sim.intel) sim_abort("NEO uses the allocation of an image that it could not import");
    TRY(code);
    if (map && there < made.size) sim_abort("this image is larger than the memory that is imported for it");
    if (!map) map = sim_pages_new(there);
    REFUSE_IF(!map, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    sim_image *image = sim_new(SIM_IMAGE, sizeof *image);
    made.object = image->object;
    made.context = context;
    made.data = map;
    made.map_size = there;
    *image = made;
    context->users++;
    *out = image;
    RETURN(ZE_RESULT_SUCCESS);
}

ze_result_t zeImageDestroy(ze_image_handle_t handle) {
    CALL("image=%p", (void *)handle);
    sim_image *image;
    TRY(sim_get(handle, SIM_IMAGE, &image));
    if (image->queued) sim_abort("this image is destroyed while work that is queued uses it");
    sim_pages_free(image->data, image->map_size);
    image->context->users--;
    image->object.alive = false;
    RETURN(ZE_RESULT_SUCCESS);
}

/* ---- copies */
static ze_image_region_t whole(const sim_image *image) {
    return (ze_image_region_t){0, 0, 0, image->width, image->height, image->depth};
}

static ze_result_t side_of(sim_side *side, sim_image *image, const ze_image_region_t *region) {
    if (region->width == 0 || region->height == 0 || region->depth == 0) return ZE_RESULT_ERROR_INVALID_SIZE;
    if (region->originX + region->width > image->width || region->originY + region->height > image->height ||
        region->originZ + region->depth > image->depth) {
        sim_abort("this region leaves its image");
    }
    side->image = image;
    side->row = image->row;
    side->slice = image->slice;
    side->data = image->data + region->originZ * image->slice + region->originY * image->row + region->originX * image->element;
    return ZE_RESULT_SUCCESS;
}

static void extent(sim_op *op, const sim_image *image, const ze_image_region_t *region) {
    op->copy.width = region->width * image->element;
    op->copy.height = region->height;
    op->copy.depth = region->depth;
}

static ze_result_t copy_images(ze_command_list_handle_t handle, ze_image_handle_t to_handle, ze_image_handle_t from_handle,
                               const ze_image_region_t *to_region, const ze_image_region_t *from_region,
                               ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    sim_list *list;
    sim_image *to, *from;
    ze_result_t code = sim_list_open(handle, &list);
    if (!code) code = sim_get(to_handle, SIM_IMAGE, &to);
    if (!code) code = sim_get(from_handle, SIM_IMAGE, &from);
    if (code) return code;
    ze_image_region_t to_area = to_region ? *to_region : whole(to), from_area = from_region ? *from_region : whole(from);
    if (to_area.width != from_area.width || to_area.height != from_area.height || to_area.depth != from_area.depth ||
        to->element != from->element)
        return ZE_RESULT_ERROR_INVALID_SIZE;
#define COMMON(origin, length)                                           \
    (to_area.origin < from_area.origin + from_area.length && from_area.origin < to_area.origin + to_area.length)
    if (to == from && COMMON(originX, width) && COMMON(originY, height) && COMMON(originZ, depth))
        sim_abort("the two regions of this image overlap");
#undef COMMON
    sim_op *op = sim_op_new(DO_COPY);
    code = side_of(&op->copy.to, to, &to_area);
    if (!code) code = side_of(&op->copy.from, from, &from_area);
    if (code) {
        sim_op_free(op);
        return code;
    }
    extent(op, to, &to_area);
    return sim_append(list, op, signal, wait_count, waits);
}

static ze_result_t copy_memory(ze_command_list_handle_t handle, bool to_image, ze_image_handle_t image_handle, void *address,
                               const ze_image_region_t *region, uint32_t row, uint32_t slice, ze_event_handle_t signal,
                               uint32_t wait_count, ze_event_handle_t *waits) {
    sim_list *list;
    sim_image *image;
    ze_result_t code = sim_list_open(handle, &list);
    if (!code) code = sim_get(image_handle, SIM_IMAGE, &image);
    if (!code && !address) code = ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (code) return code;
    ze_image_region_t area = region ? *region : whole(image);
    sim_op *op = sim_op_new(DO_COPY);
    sim_side *linear = to_image ? &op->copy.from : &op->copy.to;
    if ((code = side_of(to_image ? &op->copy.to : &op->copy.from, image, &area))) {
        sim_op_free(op);
        return code;
    }
    extent(op, image, &area);
    /* "the slice pitch must be set to 0" for images without slices; rows and slices must not overlap. */
    bool slices = image->desc.type == ZE_IMAGE_TYPE_3D || image->desc.type == ZE_IMAGE_TYPE_1DARRAY ||
                  image->desc.type == ZE_IMAGE_TYPE_2DARRAY;
    if ((slice && !slices) || (row && row < op->copy.width) || (slice && slice < (row ? row : op->copy.width) * op->copy.height)) {
        sim_op_free(op);
        return ZE_RESULT_ERROR_INVALID_SIZE;
    }
    linear->row = row ? row : op->copy.width;
    linear->slice = slice ? slice : linear->row * op->copy.height;
    linear->data = sim_data(address, (area.depth - 1) * linear->slice + (area.height - 1) * linear->row + op->copy.width,
                            &linear->allocation);
    return sim_append(list, op, signal, wait_count, waits);
}

ze_result_t zeCommandListAppendImageCopy(ze_command_list_handle_t list, ze_image_handle_t to, ze_image_handle_t from,
                                         ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p signal=%p waits=%u", (void *)list, (void *)to, (void *)from, (void *)signal, wait_count);
    RETURN(copy_images(list, to, from, NULL, NULL, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendImageCopyRegion(ze_command_list_handle_t list, ze_image_handle_t to, ze_image_handle_t from,
                                               const ze_image_region_t *to_region, const ze_image_region_t *from_region,
                                               ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p dstRegion=%s srcRegion=%s signal=%p waits=%u", (void *)list, (void *)to, (void *)from,
         sim_hex(to_region, sizeof *to_region), sim_hex(from_region, sizeof *from_region), (void *)signal, wait_count);
    RETURN(copy_images(list, to, from, to_region, from_region, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendImageCopyToMemory(ze_command_list_handle_t list, void *to, ze_image_handle_t from,
                                                 const ze_image_region_t *region, ze_event_handle_t signal, uint32_t wait_count,
                                                 ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p region=%s signal=%p waits=%u", (void *)list, to, (void *)from, sim_hex(region, sizeof *region),
         (void *)signal, wait_count);
    RETURN(copy_memory(list, false, from, to, region, 0, 0, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendImageCopyFromMemory(ze_command_list_handle_t list, ze_image_handle_t to, const void *from,
                                                   const ze_image_region_t *region, ze_event_handle_t signal,
                                                   uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p region=%s signal=%p waits=%u", (void *)list, (void *)to, from, sim_hex(region, sizeof *region),
         (void *)signal, wait_count);
    RETURN(copy_memory(list, true, to, (void *)(uintptr_t)from, region, 0, 0, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendImageCopyToMemoryExt(ze_command_list_handle_t list, void *to, ze_image_handle_t from,
                                                    const ze_image_region_t *region, uint32_t row, uint32_t slice,
                                                    ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p region=%s rowPitch=%u slicePitch=%u signal=%p waits=%u", (void *)list, to, (void *)from,
         sim_hex(region, sizeof *region), row, slice, (void *)signal, wait_count);
    RETURN(copy_memory(list, false, from, to, region, row, slice, signal, wait_count, waits));
}

ze_result_t zeCommandListAppendImageCopyFromMemoryExt(ze_command_list_handle_t list, ze_image_handle_t to, const void *from,
                                                      const ze_image_region_t *region, uint32_t row, uint32_t slice,
                                                      ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    CALL("list=%p dst=%p src=%p region=%s rowPitch=%u slicePitch=%u signal=%p waits=%u", (void *)list, (void *)to, from,
         sim_hex(region, sizeof *region), row, slice, (void *)signal, wait_count);
    RETURN(copy_memory(list, true, to, (void *)(uintptr_t)from, region, row, slice, signal, wait_count, waits));
}
