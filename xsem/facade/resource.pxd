from xsem.runtime.device_state cimport DeviceState
from xsem.runtime.lifetime cimport Usable

cdef class Releasable:
    cdef object __weakref__
    cdef public DeviceState _device_state
    cdef public Usable _lifetime
    cpdef _check(self)

cdef class DeviceObject(Releasable):
    cdef public object device
    cpdef _attach(self, device, Usable lifetime)

cdef class Resource(DeviceObject):
    pass
