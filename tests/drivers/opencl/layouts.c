/* Compares numbers and places with the vendor's headers (package opencl-c-headers), if the compiler finds them. */
#if __has_include(<CL/cl_icd.h>)
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#define SIMCL_VENDOR_HEADERS
#include "cl_abi.h"

#define NUMBER(name, value) _Static_assert((name) == (value), #name);
CL_NUMBERS
#undef NUMBER
#define FUNCTION(name, place, result, parameters)                                             \
    _Static_assert(offsetof(cl_icd_dispatch, name) == (place) * sizeof(void *), #name);       \
    static result(*like_##name) parameters __attribute__((unused)) = name;
#define OWN FUNCTION
CL_FUNCTIONS
#undef FUNCTION
#undef OWN
_Static_assert(sizeof(cl_icd_dispatch) == CL_PLACES * sizeof(void *), "places");
_Static_assert(CL_LAYER_API_VERSION == 0x4240 && CL_LAYER_API_VERSION_100 == 100, "layer");
#endif

typedef int simcl_layouts;
