cimport cython

@cython.final
cdef class Claim:
    cdef public bint over

@cython.locals(claim=Claim)
cpdef Claim new_claim()

@cython.final
cdef class Claimed:
    cdef Claim _by
    cpdef bint live(self)
    cpdef take(self, Claim claim)
