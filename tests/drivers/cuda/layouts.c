/* Prints the layouts of the structs. Tests compare them with the classes of cuda.bindings. */
#include <stdio.h>

#include "cuda_abi.h"

int main(void) {
#define PRINT(type, size, field, offset) printf("%s %zu %s %zu\n", #type, sizeof(type), #field, offsetof(type, field));
    SIMCUDA_LAYOUTS(PRINT)
    return 0;
}
