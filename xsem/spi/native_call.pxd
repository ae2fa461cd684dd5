cimport cython
from libc.stdint cimport uint64_t, uintptr_t


@cython.final
cdef class NativeCall:
    cdef uintptr_t _address
    cdef uintptr_t[4] _arguments
    cdef char *_slots
    cdef Py_ssize_t _count, _stride
    cdef object _view, _failed, _with_fences, _kept
    cpdef append(self, values, wait_fences=*, bint want_fence=*)
