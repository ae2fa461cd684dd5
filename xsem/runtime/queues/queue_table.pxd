cimport cython
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.native cimport Lock
from xsem.runtime.queues.queue cimport Queue

@cython.final
cdef class QueueTable:
    cdef object __weakref__
    cdef public DeviceState device_state
    cdef public Lock streams_lock
    cdef public object copy_lock, lock, _numbers, _next_look
    cdef public Queue copy_queue
    cdef public dict _queues
    @cython.locals(queue=Queue)
    cpdef Queue borrowed(self, identity)
    @cython.locals(queue=Queue)
    cpdef tuple use_borrowed(self, identity)
