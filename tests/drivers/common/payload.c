#include "payload.h"

#define FD_FROM 700 /* eventfds are kept out of the way of the numbers that programs look at */

/* ---- inert objects */
static sim_inert *inert_objects;

sim_inert *sim_inert_of(int kind, const void *handle, const char *name) {
    for (sim_inert *each = inert_objects; each; each = each->next)
        if (each->kind == kind && each->handle == handle && strcmp(each->name, name) == 0) {
            each->users++;
            return each;
        }
    sim_inert *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->handle = handle;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->users = 1;
    made->next = inert_objects;
    return inert_objects = made;
}

static void let_go(sim_inert *inert) {
    if (--inert->users) return;
    for (sim_inert **at = &inert_objects; *at; at = &(*at)->next)
        if (*at == inert) {
            *at = inert->next;
            break;
        }
    free(inert);
}

/* ---- objects of the host device */
#ifndef _WIN32
bool sim_payload_take(sim_payload *payload, int fd) {
    switch (xsem_host_recognise(fd)) {
        case XSEM_HOST_TIMELINE:
            payload->timeline = xsem_host_timeline_open(fd);
            return payload->timeline;
        case XSEM_HOST_BINARY:
            payload->binary = fcntl(fd, F_DUPFD_CLOEXEC, FD_FROM);
            return payload->binary >= 0;
        default: return false;
    }
}
#endif

void sim_payload_close(sim_payload *payload) {
    if (payload->timeline) xsem_host_timeline_close(payload->timeline);
    if (payload->binary != NO_HANDLE) sim_close_handle(payload->binary);
    if (payload->inert) let_go(payload->inert);
}

void sim_payload_signal(const sim_payload *payload, uint64_t value) {
    if (payload->timeline) xsem_host_timeline_signal(payload->timeline, value);
    else xsem_host_binary_signal(payload->binary);
}

bool sim_payload_wait(const sim_payload *payload, uint64_t value, int64_t limit_ns) {
    if (payload->timeline) return xsem_host_timeline_wait(payload->timeline, value, limit_ns);
    return xsem_host_binary_wait(payload->binary, limit_ns) == 1;
}
