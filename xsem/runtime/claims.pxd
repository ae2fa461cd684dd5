cdef class Claim:
    cdef public bint over

cdef class Claimed:
    cdef Claim _by
    cpdef take(self, Claim claim)
