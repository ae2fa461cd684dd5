/* Portable objects on Windows, version 2, defined in docs/host-objects.md. C11; header only. The functions have the
 * names and the meaning of those in host_objects.h. No function closes or keeps a handle that it gets. */
#ifndef XSEM_HOST_OBJECTS_WINDOWS_H
#define XSEM_HOST_OBJECTS_WINDOWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <windows.h>
#include <winternl.h>

#define XSEM_HOST_MAGIC 0x314E4C544D455358ull
#define XSEM_HOST_VERSION 2u
#define XSEM_HOST_KIND_TIMELINE 2u
#define XSEM_HOST_TIMELINE_BYTES 4096u
#define XSEM_HOST_PLACES 256

NTSTATUS NTAPI NtQueryEvent(HANDLE, int, void *, ULONG, ULONG *);
NTSTATUS NTAPI NtQuerySection(HANDLE, int, void *, SIZE_T, SIZE_T *);

typedef struct xsem_host_page {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    _Atomic uint64_t value;
    unsigned char identifier[16];
    _Atomic uint32_t silent; /* not 0: some signals wake no waiter, so waits look once a millisecond */
    _Atomic uint32_t abandoned; /* as in host_objects.h */
    _Atomic uint64_t last;
    unsigned char zero[8];
    _Atomic unsigned char waiters[XSEM_HOST_PLACES];
} xsem_host_page;

_Static_assert(sizeof(xsem_host_page) == 320, "one page");
_Static_assert(offsetof(xsem_host_page, value) == 16, "value");
_Static_assert(offsetof(xsem_host_page, identifier) == 24, "identifier");
_Static_assert(offsetof(xsem_host_page, abandoned) == 44, "abandoned");
_Static_assert(offsetof(xsem_host_page, last) == 48, "last");
_Static_assert(offsetof(xsem_host_page, waiters) == 64, "waiters");

/* A mapped timeline. The copy of the identifier does not change if a peer overwrites the page. */
typedef struct xsem_host_timeline {
    xsem_host_page *page;
    wchar_t names[64];
} xsem_host_timeline;

typedef enum xsem_host_kind {
    XSEM_HOST_UNKNOWN = 0,
    XSEM_HOST_BINARY = 1,
    XSEM_HOST_TIMELINE = 2,
    XSEM_HOST_MEMORY = 3
} xsem_host_kind;

static inline int64_t xsem_host_now_ns(void) {
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    return now.QuadPart / frequency.QuadPart * 1000000000 + now.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

/* ---- sleep of a wait between two checks: up to 64 checks without sleep, then one per millisecond */
typedef struct xsem_host_looks {
    int64_t began, deadline, count;
} xsem_host_looks;

static inline xsem_host_looks xsem_host_looks_begin(int64_t timeout_ns) {
    int64_t now = xsem_host_now_ns();
    xsem_host_looks looks = {now, timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns, 0};
    return looks;
}

/* Milliseconds, at most 1000; 0: the time is over. */
static inline DWORD xsem_host_looks_sleep(xsem_host_looks *looks) {
    int64_t now = xsem_host_now_ns();
    if (++looks->count > 64 + (now - looks->began) / 1000000) {
        Sleep(1);
        now = xsem_host_now_ns();
    }
    if (now >= looks->deadline) return 0;
    return looks->deadline - now < 1000000000 ? (DWORD)((looks->deadline - now + 999999) / 1000000) : 1000;
}

/* ---- binary semaphores */
static inline void xsem_host_binary_signal(HANDLE event) { SetEvent(event); }

/* 1: taken. 0: the time is over. -1: GetLastError. timeout_ns < 0: no limit. */
static inline int xsem_host_binary_wait(HANDLE event, int64_t timeout_ns) {
    xsem_host_looks looks = xsem_host_looks_begin(timeout_ns);
    DWORD sleep_ms = 0;
    for (;;) {
        DWORD result = WaitForSingleObject(event, sleep_ms);
        if (result == WAIT_OBJECT_0) return 1;
        if (result == WAIT_FAILED) return -1;
        if ((sleep_ms = xsem_host_looks_sleep(&looks)) == 0) return 0;
    }
}

/* ---- the kind of a handle, as far as the contract allows it */
/* The bytes of a committed section of the paging file; 0: another object. */
static inline uint64_t xsem_host_section_size(HANDLE handle) {
    struct { void *base; ULONG attributes; LARGE_INTEGER size; } found;
    if (NtQuerySection(handle, 0, &found, sizeof found, NULL) != 0) return 0;
    return (found.attributes & ~0x80000000ul) == SEC_COMMIT ? (uint64_t)found.size.QuadPart : 0;
}

static inline xsem_host_kind xsem_host_recognise(HANDLE handle) {
    struct { LONG type, state; } event;
    if (NtQueryEvent(handle, 0, &event, sizeof event, NULL) == 0) return event.type == 1 ? XSEM_HOST_BINARY : XSEM_HOST_UNKNOWN;
    uint64_t size = xsem_host_section_size(handle);
    if (size == 0) return XSEM_HOST_UNKNOWN;
    if (size != XSEM_HOST_TIMELINE_BYTES) return XSEM_HOST_MEMORY;
    xsem_host_page *page = MapViewOfFile(handle, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, 0);
    if (!page) return XSEM_HOST_UNKNOWN;
    bool timeline = page->magic == XSEM_HOST_MAGIC && page->version == XSEM_HOST_VERSION && page->kind == XSEM_HOST_KIND_TIMELINE;
    UnmapViewOfFile(page);
    return timeline ? XSEM_HOST_TIMELINE : XSEM_HOST_MEMORY;
}

/* ---- timelines, mapped */
/* NULL if it is not a timeline. It stays valid after the handle is closed. */
static inline xsem_host_timeline *xsem_host_timeline_open(HANDLE handle) {
    if (xsem_host_recognise(handle) != XSEM_HOST_TIMELINE) return NULL;
    xsem_host_page *page = MapViewOfFile(handle, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, XSEM_HOST_TIMELINE_BYTES);
    xsem_host_timeline *made = page ? calloc(1, sizeof *made) : NULL;
    if (!made) return NULL;
    made->page = page;
    wchar_t *at = made->names + swprintf(made->names, 64, L"Local\\xsem-");
    for (int i = 0; i < 16; i++) at += swprintf(at, 4, L"%02x", page->identifier[i]);
    swprintf(at, 2, L"-");
    return made;
}

static inline void xsem_host_timeline_close(xsem_host_timeline *timeline) {
    UnmapViewOfFile(timeline->page);
    free(timeline);
}

static inline uint64_t xsem_host_timeline_value(xsem_host_timeline *timeline) {
    uint64_t value = atomic_load(&timeline->page->value);
    return atomic_load(&timeline->page->abandoned) == 1 ? atomic_load(&timeline->page->last) : value;
}

static inline void xsem_host_name(wchar_t *out, const xsem_host_timeline *timeline, int place) {
    swprintf(out, 80, L"%ls%d", timeline->names, place);
}

static inline void xsem_host_timeline_signal(xsem_host_timeline *timeline, uint64_t value) {
    if (atomic_load(&timeline->page->abandoned) == 1) return;
    atomic_store(&timeline->page->value, value);
    for (int place = 0; place < XSEM_HOST_PLACES; place++) {
        wchar_t name[80];
        if (atomic_load(&timeline->page->waiters[place]) == 0) continue;
        xsem_host_name(name, timeline, place);
        HANDLE event = OpenEventW(EVENT_MODIFY_STATE, FALSE, name);
        if (!event) continue; /* its waiter has ended */
        SetEvent(event);
        CloseHandle(event);
    }
}

/* Enters a place: a new event with its name, and its byte. NULL: all places are in use. */
static inline HANDLE xsem_host_enter(xsem_host_timeline *timeline, int *out) {
    for (int round = 0; round < 2; round++) /* free places first: a killed process leaves its byte and not its event */
        for (int place = 0; place < XSEM_HOST_PLACES; place++) {
            wchar_t name[80];
            if ((atomic_load(&timeline->page->waiters[place]) == 0) != (round == 0)) continue;
            xsem_host_name(name, timeline, place);
            SetLastError(0);
            HANDLE event = CreateEventW(NULL, FALSE, FALSE, name);
            if (event && GetLastError() != ERROR_ALREADY_EXISTS) {
                atomic_store(&timeline->page->waiters[place], 1);
                *out = place;
                return event;
            }
            if (event) CloseHandle(event);
        }
    return NULL;
}

/* 1: met. 0: the time is over, or the timeline was abandoned. timeout_ns < 0: no limit. */
static inline int xsem_host_timeline_wait(xsem_host_timeline *timeline, uint64_t value, int64_t timeout_ns) {
    if (xsem_host_timeline_value(timeline) >= value) return 1;
    if (timeout_ns == 0) return 0;
    xsem_host_looks looks = xsem_host_looks_begin(timeout_ns);
    int place = -1, met;
    HANDLE event = xsem_host_enter(timeline, &place);
    while (!(met = xsem_host_timeline_value(timeline) >= value)) {
        DWORD sleep_ms = xsem_host_looks_sleep(&looks);
        if (sleep_ms == 0 || atomic_load(&timeline->page->abandoned) == 1) break;
        if (event) WaitForSingleObject(event, atomic_load(&timeline->page->silent) ? 1 : sleep_ms);
        else Sleep(1);
    }
    if (event) {
        atomic_store(&timeline->page->waiters[place], 0); /* first: afterwards the place can have a new waiter */
        CloseHandle(event);
    }
    return met;
}

#endif
