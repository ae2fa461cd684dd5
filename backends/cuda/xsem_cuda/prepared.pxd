cimport cython
from libc.stdint cimport uintptr_t
from xsem.spi.native_call cimport NativeCall
from xsem_cuda.stream_calls cimport StreamCalls

cdef class PreparedSemaphores(NativeCall):
    cdef StreamCalls _calls
    @cython.locals(calls=StreamCalls, event=uintptr_t)
    cpdef append(self, values, wait_fences=*, bint want_fence=*)
