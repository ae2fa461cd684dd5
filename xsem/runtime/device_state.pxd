cimport cython
from xsem.runtime.forks cimport Clock
from xsem.runtime.lifetime cimport Lease, Lifetime, Releaser
from xsem.runtime.native cimport Lock
from xsem.runtime.threads cimport Background

@cython.final
cdef class DeviceState:
    cdef object __weakref__
    cdef public Lock values_lock
    cdef public object info, driver, capabilities, stop_watching, notifier, gate
    cdef public Clock clock
    cdef public long long generation
    cdef public bint needs_handover
    cdef public dict owing, _fences, _detached, _abilities
    cdef public object _fence_keys
    cdef public Background callbacks_thread
    cdef public Lifetime lifetime
    cdef public Releaser releaser
    cpdef check(self)
    cpdef add_fence(self, token)
    cpdef detach_fence(self, key)
    @cython.locals(lifetime=Lifetime)
    cpdef return_fences(self)
    cpdef _return_fence(self, key)

cdef class Calling(Lease):
    cdef object _handle_type
    cdef DeviceState _device_state

@cython.final
cdef class Making(Calling):
    cdef object _what, _free, _token_of, _made
    cdef bint _may_block
    cdef Lifetime _lifetime_made, _parent
