from xsem.runtime.queues.prepared_cache cimport PreparedCache
from xsem.runtime.queues.completion cimport CompletionTracker
from xsem.runtime.queues.operations cimport Append, DriverCall, Fence, Operation
cdef class Queue(CompletionTracker):
    cdef public list recorded, recorded_uses
    cdef public object recorded_by, _use
    cdef public PreparedCache prepared
    cdef public DriverCall barrier
    cpdef append(self, Append append, params=*, user=*, kept=*, lifetimes=*, memories=*, bint want_fence=*)
    cpdef _take_back(self, Operation op)
