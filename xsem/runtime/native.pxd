cimport cython
from cpython.pythread cimport PyThread_type_lock


@cython.final
cdef class Lock:
    cdef PyThread_type_lock _lock
    cdef unsigned long _owner
    cdef Py_ssize_t _count, _waiting
    cdef bint _locked
    cpdef bint acquire(self, bint blocking=*, double timeout=*) except -1
    cdef bint _wait(self, unsigned long thread, double timeout) except -1
    cpdef release(self)


cpdef double now()
