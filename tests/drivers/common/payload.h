/* Payloads of imported semaphores: objects of the host device, and inert objects in place of those that a machine lacks. */
#ifndef SIM_PAYLOAD_H
#define SIM_PAYLOAD_H

#include "common.h"

/* One for each handle or name while it is imported. */
typedef struct sim_inert {
    struct sim_inert *next;
    int kind;                        /* the stand-in's number for it */
    const void *handle;
    char name[1100];
    int users;
    bool signalled, held;
    uint64_t value, key, promised;
    void *own;                       /* what the stand-in keeps with it */
} sim_inert;

/* Its object: one of these three. */
typedef struct {
    xsem_host_timeline *timeline;
    sim_handle binary;
    sim_inert *inert;
} sim_payload;

#define SIM_NO_PAYLOAD ((sim_payload){.binary = NO_HANDLE})

sim_inert *sim_inert_of(int kind, const void *handle, const char *name);

#ifndef _WIN32
/* Opens the object of the fd, whatever the type of the import. The fd stays open. False: an fd of something else, or too many files. */
bool sim_payload_take(sim_payload *payload, int fd);
#endif
void sim_payload_close(sim_payload *payload);
/* The next two are for objects of the host device. */
void sim_payload_signal(const sim_payload *payload, uint64_t value);
/* A binary semaphore is reset. limit_ns < 0: no limit. */
bool sim_payload_wait(const sim_payload *payload, uint64_t value, int64_t limit_ns);

#endif
