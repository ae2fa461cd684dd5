/* What all stand-ins share: the log, the failures made on purpose, counters, and objects' addresses. */
#ifndef SIM_COMMON_H
#define SIM_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../../support/host_objects.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- which stand-in this is: each defines it */
typedef struct {
    const char *name;        /* "simcuda", before what it says on stderr */
    const char *variables;   /* "SIMCUDA", before the names of its settings */
    const char *abort_hint;  /* behind the reason of an abort */
    pthread_mutex_t *lock;   /* guards everything */
    bool (*named)(const char *function, const char *asked); /* NULL: the names are equal */
} sim_identity;

extern const sim_identity sim_this;

/* SIMCUDA_<name>, SIMZE_<name>, …; NULL where it is unset or empty. */
const char *sim_setting(const char *name);
/* Says on stderr that a setting is wrong, and ends the process. */
_Noreturn void sim_wrong_setting(const char *name, const char *why);
/* Reads LOG, FAIL, FAIL_AFTER and LATE_US. */
void sim_begin(void);

/* ---- log: a line for each call and each note */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The function that this thread is in. */
extern __thread const char *sim_call;
/* Notes the call, and remembers it. */
void sim_called(const char *name, const char *format, va_list arguments);
/* Hex, in a buffer of the thread that lives until its eighth next use. */
const char *sim_hex(const void *bytes, size_t size);
/* Says where and why, and ends the process. */
_Noreturn void sim_abort(const char *why);

/* ---- failures on purpose: NAME:CODE[:NUMBER[+]],… */
/* The code that this call is to fail with; 0: none. Takes the lock. */
int sim_failure_of(const char *name, bool after);
/* From now on; NULL: none. Takes the lock. */
void sim_set_failures(const char *before, const char *after);

/* ---- faults: which of the names SIMCUDA_FAULT or SIMCL_FAULT gives; 0: none */
size_t sim_fault_of(const char *const *names, size_t count);

/* ---- counters: `own`, or as many bytes of the file that SIMZE_COUNTERS names, which processes share */
void *sim_shared(void *own, size_t size);

/* ---- what acted and is not done yet: LATE_US, for how long. A worker calls it with the lock, which it gives up meanwhile, behind the
 * last signal of a list. What is seen of a signal elsewhere may be seen before it is done: who takes the one for the other is found. */
void sim_be_late(void);

/* ---- objects: handles are addresses of these; none is ever given back, so a late use is recognised */
typedef struct {
    int kind;
    bool alive;
} sim_object;

void *sim_new(int kind, size_t size);
/* NULL where it never was one of this kind; what was destroyed is found, not alive. */
void *sim_known(const void *handle, int kind);
/* A forked child has none. */
void sim_forget_objects(void);

#endif
