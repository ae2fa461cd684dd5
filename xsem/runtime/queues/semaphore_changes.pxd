cdef class StateChanges:
    cdef list _ordered, _signalled, _turned, _waiting
