from libc.stdint cimport uintptr_t

cdef class NativeFunction:
    cdef uintptr_t _address
    cdef object _failed
    cpdef call(self, uintptr_t first=*, uintptr_t second=*, uintptr_t third=*, uintptr_t fourth=*)

cdef class NativeQuery:
    cdef uintptr_t _address
    cdef object _failed
    cpdef int query(self, uintptr_t pointer) except? -1

cdef class NativeCall:
    cdef uintptr_t _address
    cdef uintptr_t _arguments[4]
    cdef object _view, _failed, _kept
    cdef char *_slots
    cdef Py_ssize_t _count, _stride
    cpdef call(self, values)
    cpdef append(self, values, wait_fences=*, bint want_fence=*)
