cdef class Fence:
    cdef object __weakref__
    cdef public object device_state, token, queue, seq
    cdef public bint captured
    cdef public Py_ssize_t slots
    cdef public object _key

cdef class Append:
    cdef public object operation, lifetimes
    cdef public bint may_wait, reenters
    cpdef begin(self, Operation op, object user, bint recording)
    cpdef take_back(self, Operation op)
    cpdef call(self, object params, object fences, object memories, bint want_fence)

cdef class DriverCall(Append):
    cdef public object _arguments, _function

cdef class Work(Append):
    cdef public object _driver, _work

cdef class Operation:
    cdef public object seq, params, kept, fence, before, claim, appended_at
    cdef public Append append
