cdef class Background:
    cdef public bint stalled
