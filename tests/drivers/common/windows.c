#ifdef _WIN32
#include "common.h"

int sim_thread_id(void) { return (int)GetCurrentThreadId(); }

int sim_open_log(const char *path) {
    HANDLE file = CreateFileA(path, FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_ALWAYS,
                              FILE_ATTRIBUTE_NORMAL, NULL);
    return file == INVALID_HANDLE_VALUE ? -1 : (int)(intptr_t)file;
}

bool sim_write_log(int file, const char *line, size_t length) {
    DWORD written = 0;
    return WriteFile((HANDLE)(intptr_t)file, line, (DWORD)length, &written, NULL) && written == length;
}

void sim_close_handle(sim_handle handle) { CloseHandle(handle); }

/* ---- pages: views of sections, so that there can be further views */
void *sim_pages_new(size_t size) {
    HANDLE section = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD)(size >> 32), (DWORD)size, NULL);
    if (!section) return NULL;
    void *map = MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, size);
    CloseHandle(section);
    return map;
}

void *sim_pages_reserve(size_t size) { return VirtualAlloc(NULL, size, MEM_RESERVE, PAGE_NOACCESS); }

void sim_pages_free(void *map, size_t size) {
    (void)size;
    if (!UnmapViewOfFile(map)) VirtualFree(map, 0, MEM_RELEASE);
}
#endif
