cimport cython
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.lifetime cimport Lifetime
from xsem.runtime.native cimport Lock
from xsem.runtime.queues.operations cimport Fence, Operation

cdef class CompletionTracker:
    cdef object __weakref__
    cdef public DeviceState device_state
    cdef public Lifetime lifetime
    cdef public object driver, name, operations, failure
    cdef public long long seq, done_seq
    cdef public bint borrowed, recording, exposed, closed, _issuing, _warned, _only_application
    cdef public Lock lock
    cdef public object _markers, _query_capture, _user
    cdef public long long _limit, _mark_every, _issued, _last_wait, _slots, _done_slots, _marked, _polled, _due
    cpdef enter(self)
    @cython.locals(before=cython.longlong)
    cpdef _note_marker(self, Fence fence)
    cpdef _set_due(self)
    cpdef long long _room(self)
    cpdef maybe_fence(self)
    cpdef poll(self)
    @cython.locals(head=Fence, tail=Fence)
    cpdef _poll(self)
    cpdef reached(self, long long seq)
    @cython.locals(head=Fence, reached=Fence)
    cpdef _retire_markers(self, long long seq)
    @cython.locals(op=Operation)
    cpdef _retire(self, long long seq, long long slots)
