cdef class Background:
    cdef dict __dict__
    cdef object __weakref__
    cdef public bint stalled
