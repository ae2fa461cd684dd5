cimport cython
from xsem.runtime.lifetime cimport Lifetime, Usable

@cython.final
cdef class WrapperLifetime(Usable):
    cdef Lifetime _parent
    cdef object _what
    cdef bint _over

@cython.locals(lifetime=WrapperLifetime)
cpdef WrapperLifetime new_wrapper_lifetime(what, Lifetime parent)
