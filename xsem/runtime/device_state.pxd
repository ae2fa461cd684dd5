from xsem.runtime.lifetime cimport Lifetime, Releaser
cdef class DeviceState:
    cdef object __weakref__
    cdef public object info, driver, capabilities, generation, values_lock, stop_watching, notifier, gate
    cdef public dict _fences, _detached, owing
    cdef public object _fence_keys
    cdef public Lifetime lifetime
    cdef public Releaser releaser
    cpdef check(self)
