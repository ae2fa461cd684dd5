/* Objects of Windows: those of the host device (docs/host-objects.md). None of this was measured on Windows. */
#ifdef _WIN32
#include "sim.h"

HANDLE sim_nt_open(const void *handle, const wchar_t *name) {
    HANDLE own = NULL;
    if (!name) {
        DuplicateHandle(GetCurrentProcess(), (HANDLE)handle, GetCurrentProcess(), &own, 0, FALSE, DUPLICATE_SAME_ACCESS);
        return own;
    }
    own = OpenFileMappingW(SECTION_QUERY | SECTION_MAP_READ | SECTION_MAP_WRITE, FALSE, name);
    return own ? own : OpenEventW(SYNCHRONIZE | EVENT_MODIFY_STATE | 1 /* EVENT_QUERY_STATE */, FALSE, name);
}
#endif
