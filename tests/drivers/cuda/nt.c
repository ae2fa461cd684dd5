/* Objects of Windows: those of the host device (docs/host-objects.md), and keyed mutexes. A KMT handle N is the object with the
 * name Local\simcuda-kmt-N, in eight hexadecimal digits. None of this was measured on Windows. */
#ifdef _WIN32
#include "sim.h"

#define MUTEX_MAGIC 0x315854554D444553ull
#define MUTEX_BYTES 4096

/* A section: a value, so that no process can leave it half changed. Without an owner, a killed process keeps it. */
struct sim_mutex {
    uint64_t magic;
    _Atomic uint64_t key;
    _Atomic uint32_t held;
};

static const wchar_t *kmt_name(const void *handle) {
    static __thread wchar_t name[40];
    swprintf(name, 40, L"Local\\simcuda-kmt-%08x", (unsigned)(uintptr_t)handle);
    return name;
}

/* A handle of its own to the object; NO_HANDLE: it does not exist, or it has another type. The caller keeps its handle. */
HANDLE sim_nt_open(const void *handle, const wchar_t *name, bool kmt) {
    HANDLE own = NULL;
    if (kmt) name = kmt_name(handle);
    if (!name) {
        DuplicateHandle(GetCurrentProcess(), (HANDLE)handle, GetCurrentProcess(), &own, 0, FALSE, DUPLICATE_SAME_ACCESS);
        return own;
    }
    own = OpenFileMappingW(SECTION_QUERY | SECTION_MAP_READ | SECTION_MAP_WRITE, FALSE, name);
    return own ? own : OpenEventW(SYNCHRONIZE | EVENT_MODIFY_STATE | 1 /* EVENT_QUERY_STATE */, FALSE, name);
}

/* ---- keyed mutexes */
sim_mutex *sim_mutex_open(HANDLE handle) {
    if (xsem_host_section_size(handle) != MUTEX_BYTES) return NULL;
    sim_mutex *mutex = MapViewOfFile(handle, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, MUTEX_BYTES);
    if (!mutex || mutex->magic == MUTEX_MAGIC) return mutex;
    UnmapViewOfFile(mutex);
    return NULL;
}

void sim_mutex_close(sim_mutex *mutex) { UnmapViewOfFile(mutex); }

bool sim_mutex_try(sim_mutex *mutex, uint64_t key) {
    uint32_t free_ = 0;
    if (atomic_load(&mutex->key) != key || !atomic_compare_exchange_strong(&mutex->held, &free_, 1)) return false;
    if (atomic_load(&mutex->key) == key) return true;
    atomic_store(&mutex->held, 0); /* released with another key meanwhile */
    return false;
}

void sim_mutex_release(sim_mutex *mutex, uint64_t key) {
    atomic_store(&mutex->key, key);
    atomic_store(&mutex->held, 0);
}

/* For tests: a new keyed mutex, free with key 0. `name` or `kmt` can be NULL or 0. The caller closes the handle. */
EXPORT HANDLE simcuda_create_keyed_mutex(const wchar_t *name, unsigned kmt) {
    if (kmt) name = kmt_name((void *)(uintptr_t)kmt);
    HANDLE section = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0, MUTEX_BYTES, name);
    sim_mutex *mutex = section ? MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, MUTEX_BYTES) : NULL;
    if (!mutex) return NULL;
    mutex->magic = MUTEX_MAGIC;
    UnmapViewOfFile(mutex);
    return section;
}

/* ---- functions that a driver of this version lacks: GetProcAddress does not find them */
void sim_nt_hide(const char *symbol) {
    MEMORY_BASIC_INFORMATION here;
    VirtualQuery((void *)(uintptr_t)sim_nt_hide, &here, sizeof here);
    char *base = here.AllocationBase;
    const IMAGE_NT_HEADERS *head = (const IMAGE_NT_HEADERS *)(base + ((const IMAGE_DOS_HEADER *)base)->e_lfanew);
    const IMAGE_EXPORT_DIRECTORY *exports =
        (const IMAGE_EXPORT_DIRECTORY *)(base + head->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_EXPORT].VirtualAddress);
    const DWORD *names = (const DWORD *)(base + exports->AddressOfNames);
    const WORD *ordinals = (const WORD *)(base + exports->AddressOfNameOrdinals);
    DWORD *functions = (DWORD *)(base + exports->AddressOfFunctions);
    for (DWORD i = 0; i < exports->NumberOfNames; i++) {
        DWORD before;
        if (strcmp(base + names[i], symbol) != 0) continue;
        VirtualProtect(&functions[ordinals[i]], sizeof *functions, PAGE_READWRITE, &before);
        functions[ordinals[i]] = 0;
        VirtualProtect(&functions[ordinals[i]], sizeof *functions, before, &before);
    }
}
#endif
