cimport cython
from xsem.facade.resource cimport Resource
from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.queues.prepared_append cimport PreparedAppend
from xsem.runtime.queues.timeline_values cimport are_values

cpdef checked_params(PreparedAppend append, params)
cpdef check_same_device(DeviceState device_state, Resource used, what)
@cython.locals(checked=Resource, lifetimes=list, tokens=list)
cpdef tuple check_memories(DeviceState device_state, memories)
