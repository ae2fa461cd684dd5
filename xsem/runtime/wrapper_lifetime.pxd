from xsem.runtime.lifetime cimport Lifetime
cdef class WrapperLifetime:
    cdef Lifetime _parent
    cdef object _what
    cdef bint _over
    cpdef check(self)
