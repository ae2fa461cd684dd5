cimport cython
from xsem.runtime.lifetime cimport Lifetime, Usable

@cython.final
cdef class WrapperLifetime(Usable):
    cdef Lifetime _parent
    cdef object _what
    cdef bint _over
