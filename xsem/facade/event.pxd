cimport cython
from xsem.facade.resource cimport DeviceObject
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.native cimport Lock
from xsem.runtime.queues.operations cimport Fence

cdef class Event(DeviceObject):
    cdef public Fence _fence
    cdef public bint _foreign
    cdef public object _claimed
    cdef public Lock _claiming
    cpdef _claim(self, by)
    cpdef _bind(self, by, Fence fence)
    cpdef Fence _bound(self)

@cython.locals(checked=Event, fence=Fence, fences=list)
cpdef list fences_of(DeviceState device_state, events)
@cython.locals(checked=Event)
cpdef check_event(DeviceState device_state, event)
