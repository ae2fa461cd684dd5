cimport cython
from libc.stdint cimport uintptr_t
from xsem.spi.native_call cimport NativeFunction, NativeQuery
from xsem_cuda.fences cimport Fence, Fences, new_fence

@cython.final
cdef class StreamCalls:
    cdef public object captured, keyed
    cdef Fences _fences
    cdef uintptr_t _handle
    cdef NativeFunction _wait_event, _record_event
    cdef NativeQuery _capture_status
    @cython.locals(captured=cython.bint)
    cpdef is_capturing(self)
    cpdef barrier(self, wait_fences, bint want_fence)
    @cython.locals(fence=Fence, event=uintptr_t)
    cpdef uintptr_t begin(self, wait_fences, bint want_fence) except? 0
    @cython.locals(fence=Fence)
    cpdef _wait_for(self, wait_fences)
    cpdef end(self, uintptr_t event)
    cpdef cancel(self, uintptr_t event)

cdef class StreamBase:
    cdef public StreamCalls _calls
    cpdef append_barrier(self, wait_fences, bint want_fence)
    cpdef is_capturing(self)
