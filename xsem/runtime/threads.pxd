cdef class Worker:
    cdef public bint stalled
