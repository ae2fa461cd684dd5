cimport cython
from xsem.runtime.lifetime cimport Lifetime, Releaser
from xsem.runtime.native cimport Lock
from xsem.runtime.queues.completion cimport CompletionTracker
from xsem.runtime.queues.operations cimport Append, Operation
from xsem.runtime.queues.timeline_values cimport all_above, last_values, store_values
from xsem.runtime.semaphore_state cimport SemaphoreState
from xsem.spi.native_call cimport NativeCall

cdef class PreparedAppend(Append):
    cdef object __weakref__
    cdef public CompletionTracker queue
    cdef public tuple states
    cdef public object params_type
    cdef public long long last_seq
    cdef public bint batch, timelines, takes_int, takes_none, dropped
    cdef public object _append, _prepare, _repeat, _tokens, _limit
    cdef public NativeCall _native
    cdef public Releaser _releaser
    cdef public Lock _lock
    cdef public long long _appends, _seen
    cdef public bint _limited, _resets
    cpdef begin(self, Operation op, user, bint recording)
    @cython.locals(lifetime=Lifetime)
    cpdef note_use(self, Operation op, user)
    cpdef call(self, params, fences, memories, bint want_fence)

cdef class _TimelineSignal(PreparedAppend):
    @cython.locals(state=SemaphoreState)
    cdef _store(self, Operation op)
    cpdef begin(self, Operation op, user, bint recording)
    cpdef take_back(self, Operation op)

cdef class _OtherKinds(PreparedAppend):
    cpdef begin(self, Operation op, user, bint recording)
