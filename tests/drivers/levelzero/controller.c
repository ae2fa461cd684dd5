/* The semaphore controller of Intel's driver (SIMZE_CONTROLLER), after its source.
 *
 * One thread of the driver makes all waits and signals. A list only waits for, or sets, an event of the entry. So a signal is made
 * after the list has passed it (SIMZE_LAG_US), and the thread uses the semaphore then.
 *   fifo: from 26.22 on. The thread looks at all entries in turn.
 *   On Windows, the thread waits in the kernel for each wait that it looks at, with its lock.
 *   lifo: before 26.22. The thread begins with the newest entry, and a signal blocks it, with its lock, until the list passes it. */
#include "work.h"

#define STUCK_NS 3000000000

struct sim_entry {
    sim_entry *next, *before;
    sim_semaphore *semaphore;
    uint64_t value;
    bool is_signal, over;
    int64_t passed_ns;               /* of a signal: when its list passed it; 0: not yet */
};

static sim_entry *first, *last;
static bool running, passing, blocked;

static void take_out(sim_entry *entry) {
    *(entry->before ? &entry->before->next : &first) = entry->next;
    *(entry->next ? &entry->next->before : &last) = entry->before;
    entry->semaphore->queued--;
    entry->over = true;
    pthread_cond_broadcast(&sim.changed);
}

static bool is_due(const sim_entry *entry) {
    return entry->passed_ns && xsem_host_now_ns() >= entry->passed_ns + (int64_t)sim.lag_us * 1000;
}

static void make(sim_entry *entry) {
    sim_semaphore_signal(entry->semaphore, entry->value);
    take_out(entry);
    free(entry);
}

static void nap(void) {
    struct timespec until;
    int64_t now = xsem_host_now_ns() + 50000;
    until.tv_sec = now / 1000000000;
    until.tv_nsec = now % 1000000000;
    pthread_cond_timedwait(&sim.changed, &sim.lock, &until);
}

static void look_at_wait(sim_entry *entry) {
    bool passes = sim_semaphore_passes(entry->semaphore, entry->value);
    while (!passes && sim.windows) {
        blocked = true;
        nap();
        passes = sim_semaphore_passes(entry->semaphore, entry->value);
    }
    blocked = false;
    if (passes) take_out(entry); /* its list frees it */
}

/* The pause between two entries of a pass (SIMZE_ENTRY_US). Lists continue. Appends wait for the end of the pass. */
static void rest(void) {
    int64_t until = xsem_host_now_ns() + (int64_t)sim.entry_us * 1000;
    while (xsem_host_now_ns() < until) nap();
}

/* The lag is a late thread: meanwhile it looks at no entry. */
static bool is_late(void) {
    for (const sim_entry *entry = first; entry; entry = entry->next)
        if (entry->is_signal && entry->passed_ns && !is_due(entry)) return true;
    return false;
}

static void pass_from_first(void) {
    for (sim_entry *entry = first, *next; entry; entry = next) {
        next = entry->next;
        if (!entry->is_signal) look_at_wait(entry);
        else if (is_due(entry)) make(entry);
        if (next) rest();
    }
}

static void pass_from_last(void) {
    for (sim_entry *entry = last, *next; entry; entry = next) {
        if (entry->is_signal) {
            blocked = true;
            while (!is_due(entry)) nap();
            blocked = false;
        }
        next = entry->before;
        if (entry->is_signal) make(entry);
        else look_at_wait(entry);
        if (next) rest();
    }
}

static void *run(void *nothing) {
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        passing = !is_late();
        if (!passing) nap();
        else if (sim.controller == CONTROLLER_FIFO) pass_from_first();
        else pass_from_last();
        passing = false;
        if (first) nap();
        else pthread_cond_wait(&sim.changed, &sim.lock);
    }
    return nothing;
}

void sim_controller_lock(void) {
    int64_t from = xsem_host_now_ns();
    while (passing) {
        nap();
        if (blocked && xsem_host_now_ns() - from > STUCK_NS)
            sim_abort("an append waits for ever: an operation behind an unmet wait, and the thread of the driver is blocked");
    }
}

sim_entry *sim_controller_add(sim_semaphore *semaphore, uint64_t value, bool is_signal) {
    sim_entry *entry = calloc(1, sizeof *entry);
    entry->semaphore = semaphore;
    entry->value = value;
    entry->is_signal = is_signal;
    entry->before = last;
    *(last ? &last->next : &first) = entry;
    last = entry;
    semaphore->queued++;
    if (!running) sim_start_thread(run, NULL);
    running = true;
    pthread_cond_broadcast(&sim.changed);
    return entry;
}

/* On a worker, without the lock. */
void sim_controller_wait(sim_entry **entries, uint32_t count) {
    pthread_mutex_lock(&sim.lock);
    for (uint32_t i = 0; i < count; i++) {
        while (!entries[i]->over) pthread_cond_wait(&sim.changed, &sim.lock);
        free(entries[i]);
    }
    pthread_mutex_unlock(&sim.lock);
}

void sim_controller_pass(sim_entry **entries, uint32_t count) {
    pthread_mutex_lock(&sim.lock);
    for (uint32_t i = 0; i < count; i++) entries[i]->passed_ns = xsem_host_now_ns();
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

/* A forked child has no thread of its parent. */
void sim_controller_forget(void) {
    first = last = NULL;
    running = passing = blocked = false;
}
