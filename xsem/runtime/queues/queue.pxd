cimport cython
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.lifetime cimport Lifetime, Releaser, Usable
from xsem.runtime.queues.completion cimport CompletionTracker
from xsem.runtime.queues.operations cimport Append, DriverCall, Fence, Operation, new_fence, new_operation
from xsem.runtime.queues.prepared_cache cimport PreparedCache

@cython.final
cdef class StreamUse:
    cdef object __weakref__

@cython.final
cdef class Queue(CompletionTracker):
    cdef public list recorded, recorded_uses
    cdef public object recorded_by, _last_use
    cdef public StreamUse _use
    cdef public PreparedCache prepared
    cdef public DriverCall barrier
    cpdef StreamUse stream_use(self)
    @cython.locals(
        device_state=DeviceState, lifetime=Lifetime, used=Lifetime, fence=Fence, waited=Fence, tokens=list, seq=cython.longlong,
        calling=cython.bint, foreign=cython.bint, captured=cython.bint, watched=cython.bint,
        outer=cython.bint,
    )
    cdef Fence _append(
        self, Operation op, Append append, params, Usable user, kept, lifetimes, memories, bint want_fence, gate,
        bint crowded)
    @cython.locals(device_state=DeviceState, releaser=Releaser, crowded=cython.bint)
    cpdef append(self, Append append, params=*, Usable user=*, kept=*, lifetimes=*, memories=*, bint want_fence=*)
    cpdef _take_back(self, Operation op)
