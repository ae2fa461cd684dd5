/* bcryptprimitives.dll of Windows 10, which Wine 8 lacks. Wheels written in Rust (pydantic-core, rpds-py, hypothesis) need its one
 * function. RtlGenRandom is SystemFunction036 of advapi32. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(void *buffer, ULONG size);

__declspec(dllexport) BOOL WINAPI ProcessPrng(unsigned char *buffer, SIZE_T size)
{
    return SystemFunction036(buffer, (ULONG)size);
}
