cimport cython
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.lifetime cimport Lifetime
from xsem.runtime.native cimport now

@cython.final
cdef class Fence:
    cdef object __weakref__
    cdef public DeviceState device_state
    cdef public object token, queue, _key
    cdef public long long seq, slots
    cdef public bint captured

cdef class Append:
    cdef public object operation, lifetimes, unreadable
    cdef public bint may_wait, reenters
    @cython.locals(lifetime=Lifetime)
    cpdef begin(self, Operation op, user, bint recording)
    cpdef take_back(self, Operation op)
    cpdef call(self, params, fences, memories, bint want_fence)

@cython.final
cdef class DriverCall(Append):
    cdef public object _arguments, _function

cdef class Work(Append):
    cdef public object _driver, _work
    cpdef call(self, params, fences, memories, bint want_fence)

@cython.final
cdef class Operation:
    cdef public long long seq
    cdef public object params, kept, before, changes
    cdef public double appended_at
    cdef public Append append
    cdef public Fence fence

@cython.locals(op=Operation)
cpdef Operation new_operation(Append append, params, kept)

@cython.locals(fence=Fence)
cpdef Fence new_fence(DeviceState device_state, token, queue, long long seq)
