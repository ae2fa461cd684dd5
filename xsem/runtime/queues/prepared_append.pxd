from xsem.runtime.queues.operations cimport Append, Operation
from xsem.runtime.semaphore_state cimport SemaphoreState
from xsem.runtime.lifetime cimport Releaser

cdef class PreparedAppend(Append):
    cdef object __weakref__
    cdef public object queue, states, params_type, last_seq
    cdef public bint batch, timelines, takes_int, takes_none, dropped
    cdef public object _append, _prepare, _repeat, _tokens, _limit
    cdef public Releaser _releaser
    cdef public Py_ssize_t _appends
    cdef public object _seen
    cdef public bint _resets
    cpdef note_use(self, Operation op, object user)
    cpdef begin(self, Operation op, object user, bint recording)
    cpdef call(self, object params, object fences, object memories, bint want_fence)
    cpdef take_back(self, Operation op)

cdef class _TimelineSignal(PreparedAppend):
    cpdef begin(self, Operation op, object user, bint recording)
    cpdef take_back(self, Operation op)

cdef class _OtherKinds(PreparedAppend):
    cpdef begin(self, Operation op, object user, bint recording)
