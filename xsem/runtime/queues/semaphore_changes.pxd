from xsem.runtime.claims cimport Claim

cdef class StateChanges:
    cdef Claim _claim
    cdef list _ordered, _signalled, _turning, _waiting
