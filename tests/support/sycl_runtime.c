// The three functions of the SYCL runtime that xsem calls, under their mangled names. A queue is a struct of this file.

#include <stdbool.h>
#include <stdint.h>

struct queue {
    uint64_t list;
    uint8_t backend;    // sycl::backend: 1 OpenCL, 2 Level Zero
    bool in_order;
    int32_t immediate;  // 1: the handle is a ze_command_list_handle_t
};

uintptr_t get_native(const struct queue *queue, int32_t *immediate) __asm__("_ZNK4sycl3_V15queue9getNativeERi");
uint8_t get_backend(const struct queue *queue) __asm__("_ZNK4sycl3_V15queue11get_backendEv");
#ifndef WITHOUT_IN_ORDER
bool is_in_order(const struct queue *queue) __asm__("_ZNK4sycl3_V15queue11is_in_orderEv");

bool is_in_order(const struct queue *queue) { return queue->in_order; }
#endif

uintptr_t get_native(const struct queue *queue, int32_t *immediate) {
    *immediate = queue->immediate;
    return queue->list;
}

uint8_t get_backend(const struct queue *queue) { return queue->backend; }
