/* Shared by all stand-ins: the log, configured failures, counters, and addresses of objects. */
#ifndef SIM_COMMON_H
#define SIM_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <stdbool.h>
#include <stdlib.h>

#include "system.h"

/* ---- the stand-in; each defines it */
typedef struct {
    const char *name;        /* "simcuda", the prefix of its messages on stderr */
    const char *variables;   /* "SIMCUDA", the prefix of its settings */
    const char *abort_hint;  /* after the reason of an abort */
    pthread_mutex_t *lock;   /* guards everything */
    bool (*named)(const char *function, const char *asked); /* NULL: compare names for equality */
} sim_identity;

extern const sim_identity sim_this;

/* SIMCUDA_<name>, SIMZE_<name>, …; NULL if it is unset or empty. */
const char *sim_setting(const char *name);
/* Reports a wrong setting on stderr and ends the process. */
_Noreturn void sim_wrong_setting(const char *name, const char *why);
/* Reads LOG, FAIL, FAIL_AFTER and LATE_US. */
void sim_begin(void);

/* ---- log: a line for each call and each note */
void sim_note(const char *format, ...) SIM_PRINTF(1, 2);
/* The current function of this thread. */
extern __thread const char *sim_call;
/* Logs the call and stores it as the current one. */
void sim_called(const char *name, const char *format, va_list arguments);
/* Hex, in a buffer of the thread that is valid for eight uses. */
const char *sim_hex(const void *bytes, size_t size);
/* Reports the function and the reason, and ends the process. */
_Noreturn void sim_abort(const char *why);

/* ---- configured failures: NAME:CODE[:NUMBER[+]],… */
/* The code with which this call must fail; 0: no failure. Takes the lock. */
int sim_failure_of(const char *name, bool after);
/* Sets the failures from now on; NULL: no failures. Takes the lock. */
void sim_set_failures(const char *before, const char *after);

/* ---- counters: `own`, or the same number of bytes of the file SIMZE_COUNTERS, which processes share */
void *sim_shared(void *own, size_t size);

/* ---- LATE_US: time between the effect of a signal and its completion. A worker calls it with the lock after the last signal of a
 * list, and releases the lock meanwhile. So a signal is visible before it is done. This finds code that takes one for the other. */
void sim_be_late(void);

/* ---- threads: detached, so that a process with pending waits can exit */
void sim_start_thread(void *(*function)(void *), void *argument);

/* ---- objects: handles are their addresses. They are never freed, so a late use is recognised */
typedef struct {
    int kind;
    bool alive;
} sim_object;

void *sim_new(int kind, size_t size);
/* NULL if it never was one of this kind. Destroyed objects are found, but not alive. */
void *sim_known(const void *handle, int kind);
/* The number of objects that are not destroyed. */
size_t sim_alive(void);
/* Removes all objects, in a forked child. */
void sim_forget_objects(void);

#endif
