cimport cython
from xsem.facade.arguments cimport check_memories, checked_params
from xsem.facade.event cimport Event, check_event, fences_of
from xsem.facade.resource cimport DeviceObject
from xsem.facade.semaphore cimport Semaphore
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.queues.operations cimport Append, DriverCall
from xsem.runtime.queues.prepared_append cimport PreparedAppend
from xsem.runtime.queues.prepared_cache cimport PreparedCache
from xsem.runtime.queues.queue cimport Queue
from xsem.runtime.wrapper_lifetime cimport new_wrapper_lifetime

cdef class CommandList(DeviceObject):
    cdef public Queue _queue
    cdef public object _stream_use, _stopped
    @cython.locals(cache=PreparedCache, semaphore=Semaphore)
    cpdef _find(self, operation, semaphores)
    cpdef _append_semaphores(
        self, PreparedAppend append, params, wait_events=*, signal_event=*, memories=*)
    @cython.locals(queue=Queue, device_state=DeviceState, event=Event)
    cpdef _append(self, Append append, params, wait_events, signal_event, memories=*)
