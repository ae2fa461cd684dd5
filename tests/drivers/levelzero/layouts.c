/* Compiled, not run: the numbers and layouts of the ABI. With -DAGAINST_VENDOR the same table is compared with the vendor's headers,
 * and so is the place of each function in the loader's tables. */
#ifdef AGAINST_VENDOR
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#define F(table, place, since, name, member) \
    _Static_assert(offsetof(table, member) == (place) * sizeof(void *), #name);
#include "functions.def"
#undef F
#else
#include "ze_abi.h"
#endif

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type);
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type " " #field);
#define NUMBER(name, value) _Static_assert((int)(name) == (int)(value), #name);
#include "layouts.def"

int main(void) { return 0; }
