from xsem.runtime.queues.operations cimport Fence, Operation
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.lifetime cimport Lifetime

cdef class CompletionTracker:
    cdef object __weakref__
    cdef dict __dict__
    cdef public DeviceState device_state
    cdef public object driver, name, lock, operations, failure
    cdef public object seq, done_seq
    cdef public bint borrowed, recording, exposed, closed, _issuing, _warned, _only_application
    cdef public Lifetime lifetime
    cdef public object _markers, _limit, _mark_every
    cdef public object _issued, _last_wait
    cdef public Py_ssize_t _slots, _done_slots, _marked, _polled, _due
    cpdef _note_marker(self, Fence fence)
    cpdef _set_due(self)
