/* The functions of POSIX threads that the stand-ins use, by the locks of Windows: of <pthread.h>, only these. */
#ifndef SIM_THREADS_WINDOWS_H
#define SIM_THREADS_WINDOWS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <windows.h>

typedef SRWLOCK pthread_mutex_t;
typedef CONDITION_VARIABLE pthread_cond_t;
typedef DWORD pthread_t;
typedef int pthread_attr_t;

#define PTHREAD_MUTEX_INITIALIZER SRWLOCK_INIT
#define PTHREAD_COND_INITIALIZER CONDITION_VARIABLE_INIT
#define PTHREAD_CREATE_DETACHED 1

static inline void pthread_mutex_lock(pthread_mutex_t *lock) { AcquireSRWLockExclusive(lock); }
static inline void pthread_mutex_unlock(pthread_mutex_t *lock) { ReleaseSRWLockExclusive(lock); }
static inline void pthread_cond_init(pthread_cond_t *condition, void *none) { (void)none, InitializeConditionVariable(condition); }
static inline void pthread_cond_signal(pthread_cond_t *condition) { WakeConditionVariable(condition); }
static inline void pthread_cond_broadcast(pthread_cond_t *condition) { WakeAllConditionVariable(condition); }
static inline void pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
    SleepConditionVariableSRW(condition, lock, INFINITE, 0);
}

/* `until` is a time of CLOCK_REALTIME. */
static inline void pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left_ms = (int64_t)(until->tv_sec - now.tv_sec) * 1000 + (until->tv_nsec - now.tv_nsec + 999999) / 1000000;
    SleepConditionVariableSRW(condition, lock, left_ms > 0 ? (DWORD)left_ms : 0, 0);
}

static inline pthread_t pthread_self(void) { return GetCurrentThreadId(); }
static inline bool pthread_equal(pthread_t one, pthread_t other) { return one == other; }
static inline void pthread_attr_init(pthread_attr_t *attributes) { *attributes = 0; }
static inline void pthread_attr_destroy(pthread_attr_t *attributes) { (void)attributes; }
static inline void pthread_attr_setdetachstate(pthread_attr_t *attributes, int state) { *attributes = state; }

typedef struct {
    void *(*run)(void *);
    void *argument;
} sim_thread_start;

static inline DWORD WINAPI sim_thread_main(void *given) {
    sim_thread_start start = *(sim_thread_start *)given;
    free(given);
    start.run(start.argument);
    return 0;
}

/* A detached thread. */
static inline int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)attributes;
    sim_thread_start *start = malloc(sizeof *start);
    if (!start) return 1;
    *start = (sim_thread_start){run, argument};
    HANDLE thread = CreateThread(NULL, 0, sim_thread_main, start, 0, id);
    if (!thread) free(start);
    return thread ? !CloseHandle(thread) : 1;
}

#endif
